// Package heartbeat keeps what one attempt at an activity knows, tells it to Temporal now and then, and leaves it to the next attempt.
package heartbeat

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
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

// ErrSuperseded says that Temporal has given the work to another attempt, or that nobody wants it any more.
var ErrSuperseded = errors.New("another attempt has taken over")

// recordTimeout is how long Temporal may take to answer a heartbeat that must not be lost.
const recordTimeout = 2 * time.Second

// Recorder records an activity's heartbeat at once, as client.Client does.
type Recorder interface {
	RecordActivityHeartbeat(ctx context.Context, taskToken []byte, details ...any) error
}

// Record makes sure that Temporal has what is known now, past the SDK's batching. It fails with ErrSuperseded when this attempt is no
// longer wanted: then it must not make its last write, whose answer nobody would hear. Temporal being out of reach is no reason to hold the
// write back.
func (d *Details[P]) Record(ctx context.Context, recorder Recorder) error {
	if !activity.IsActivity(ctx) {
		return nil
	}
	details := d.Now()
	activity.RecordHeartbeat(ctx, details)
	call, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	if recorder == nil {
		recorder = activity.GetClient(ctx)
	}
	err := recorder.RecordActivityHeartbeat(call, activity.GetInfo(ctx).TaskToken, details)
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) {
		return ErrSuperseded
	}
	return nil
}
