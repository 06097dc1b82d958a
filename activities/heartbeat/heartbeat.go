// Package heartbeat keeps what one attempt at an activity knows, tells it to Temporal now and then, and leaves it to the next attempt.
package heartbeat

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
)

// unasked is how often to tell when no heartbeat timeout asks for it.
const unasked = 10 * time.Second

// Details holds the progress of one attempt. The SDK sends the last heartbeat of an attempt that fails before it reports the failure, so
// that nothing is lost but by a crash.
type Details[P any] struct {
	mu       sync.Mutex
	progress P
}

// Start takes over what the last attempt left, or begins with first, and begins to tell. stop must be called; it tells a last time. Outside
// of an activity nobody is told.
func Start[P any](ctx context.Context, first P) (d *Details[P], stop func()) {
	d = Take(ctx, first)
	return d, d.Begin(ctx)
}

// Take takes over what the last attempt left, or begins with first.
func Take[P any](ctx context.Context, first P) *Details[P] {
	d := &Details[P]{progress: first}
	if !activity.IsActivity(ctx) {
		return d
	}
	var left P
	if activity.HasHeartbeatDetails(ctx) && activity.GetHeartbeatDetails(ctx, &left) == nil {
		d.progress = left
	}
	return d
}

// Begin begins to tell. stop must be called; it tells a last time. Outside of an activity nobody is told.
func (d *Details[P]) Begin(ctx context.Context) (stop func()) {
	if !activity.IsActivity(ctx) {
		return func() {}
	}
	every := activity.GetInfo(ctx).HeartbeatTimeout / 3
	if every <= 0 {
		every = unasked
	}
	done := make(chan struct{})
	var ending sync.WaitGroup
	ending.Go(func() { d.tell(ctx, every, done) })
	return func() {
		close(done)
		ending.Wait()
		activity.RecordHeartbeat(ctx, d.Now())
	}
}

func (d *Details[P]) tell(ctx context.Context, every time.Duration, done <-chan struct{}) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			activity.RecordHeartbeat(ctx, d.Now())
		case <-done:
			return
		}
	}
}

// Now is what is known now.
func (d *Details[P]) Now() P {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.progress
}

// Note changes what is known.
func (d *Details[P]) Note(change func(p *P)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.progress)
}
