// Package heartbeat keeps what one attempt at an activity knows, tells it to Temporal now and then, and leaves it to the next attempt. Each time it is told
// Temporal writes it down, so that nothing is told twice.
package heartbeat

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
)

const (
	// unasked is how often to tell when no heartbeat timeout asks for it.
	unasked = 10 * time.Second
	// heldBack is how long the SDK may hold a heartbeat back at most (worker.Options.MaxHeartbeatThrottleInterval), and send it after a newer one that went past
	// it.
	heldBack = 4 * time.Second
)

// Details holds the progress of one attempt. The SDK sends the last heartbeat of an attempt that fails before it reports the failure, so
// that nothing is lost but by a crash.
type Details[P any] struct {
	mu       sync.Mutex
	progress P
	// told is when it was told last.
	told time.Time
}

// Start takes over what the last attempt left, or begins with first, and begins to tell. stop must be called, as that of Begin.
func Start[P any](ctx context.Context, first P) (d *Details[P], stop func(well bool)) {
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

// Begin begins to tell. stop must be called with whether the attempt has ended well: one that has not tells a last time, for the next. Outside of an activity
// nobody is told.
func (d *Details[P]) Begin(ctx context.Context) (stop func(well bool)) {
	if !activity.IsActivity(ctx) {
		return func(bool) {}
	}
	every := activity.GetInfo(ctx).HeartbeatTimeout * 2 / 5 // one that gets lost is followed by another in time
	if every <= 0 {
		every = unasked
	}
	done := make(chan struct{})
	var ending sync.WaitGroup
	ending.Go(func() { d.keepTelling(ctx, every, done) })
	return func(well bool) {
		close(done)
		ending.Wait()
		if !well {
			d.Tell(ctx)
		}
	}
}

// keepTelling tells whenever nobody has told for a while.
func (d *Details[P]) keepTelling(ctx context.Context, every time.Duration, done <-chan struct{}) {
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			if d.silent() >= every {
				d.Tell(ctx) // which may take a while
			}
			timer.Reset(max(every-d.silent(), 0))
		case <-done:
			return
		}
	}
}

// Tell tells Temporal what is known now, as soon as the SDK lets it through. Outside of an activity nobody is told.
func (d *Details[P]) Tell(ctx context.Context) {
	if !activity.IsActivity(ctx) {
		return
	}
	d.mu.Lock()
	d.told = time.Now()
	progress := d.progress
	d.mu.Unlock()
	activity.RecordHeartbeat(ctx, progress)
}

// silent is how long nobody has told.
func (d *Details[P]) silent() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.told)
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
	if d.silent() < heldBack {
		d.Tell(ctx) // takes the place of an older one that is still held back
	}
	call, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	if recorder == nil {
		recorder = activity.GetClient(ctx)
	}
	err := recorder.RecordActivityHeartbeat(call, activity.GetInfo(ctx).TaskToken, d.Now())
	var gone *serviceerror.NotFound
	var cancelled *temporal.CanceledError
	switch {
	case errors.As(err, &gone):
		return ErrSuperseded
	case errors.As(err, &cancelled), errors.Is(err, activity.ErrActivityPaused), errors.Is(err, activity.ErrActivityReset):
		d.Tell(ctx) // has the SDK end the context, unless it holds back
		return ctx.Err()
	}
	return nil
}
