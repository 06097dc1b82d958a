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

// Beat holds the progress of one attempt. The SDK sends the last heartbeat of an attempt that fails before it reports the failure, so that
// nothing is lost but by a crash.
type Beat[P any] struct {
	mu       sync.Mutex
	progress P
}

// Start takes over what the last attempt left, or begins with first, and begins to tell. stop must be called; it tells a last time. Outside
// of an activity nobody is told.
func Start[P any](ctx context.Context, first P) (b *Beat[P], stop func()) {
	b = &Beat[P]{progress: first}
	if !activity.IsActivity(ctx) {
		return b, func() {}
	}
	var left P
	if activity.HasHeartbeatDetails(ctx) && activity.GetHeartbeatDetails(ctx, &left) == nil {
		b.progress = left
	}
	every := activity.GetInfo(ctx).HeartbeatTimeout / 3
	if every <= 0 {
		every = unasked
	}
	done := make(chan struct{})
	var ending sync.WaitGroup
	ending.Go(func() { b.tell(ctx, every, done) })
	return b, func() {
		close(done)
		ending.Wait()
		activity.RecordHeartbeat(ctx, b.Now())
	}
}

func (b *Beat[P]) tell(ctx context.Context, every time.Duration, done <-chan struct{}) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			activity.RecordHeartbeat(ctx, b.Now())
		case <-done:
			return
		}
	}
}

// Now is what is known now.
func (b *Beat[P]) Now() P {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.progress
}

// Note changes what is known.
func (b *Beat[P]) Note(change func(p *P)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.progress)
}
