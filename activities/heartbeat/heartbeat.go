// Package heartbeat holds the progress of one attempt of an activity, sends it to Temporal from time to time, and
// passes it to the next attempt. Temporal stores every heartbeat that it receives, so the package sends none without
// need.
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
	// defaultInterval is how often to send when the activity has no heartbeat timeout.
	defaultInterval = 10 * time.Second
	// maxThrottle is how long the SDK may delay a heartbeat (worker.Options.MaxHeartbeatThrottleInterval); it may then
	// send it after a newer one that bypassed the throttle.
	maxThrottle = 4 * time.Second
)

// Details holds the progress of one attempt. The SDK sends the last heartbeat of a failed attempt before it reports the
// failure. Progress is lost when the worker dies or can't reach Temporal, and when the attempt was cancelled.
type Details[P any] struct {
	mu       sync.Mutex
	progress P
	// lastSent is when progress was last sent.
	lastSent time.Time
}

// Start takes over the progress of the last attempt, or begins with first, and starts to send it. stop must be called,
// as for Begin.
func Start[P any](ctx context.Context, first P) (d *Details[P], stop func(well bool)) {
	d = Take(ctx, first)
	return d, d.Begin(ctx)
}

// Take takes over the progress of the last attempt, or begins with first.
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

// IsRepeated reports whether the attempt follows another one. `temporal activity reset` counts attempts from 1 again,
// but keeps the heartbeat; with --reset-heartbeats nothing shows that there were attempts.
func IsRepeated(ctx context.Context) bool {
	return activity.IsActivity(ctx) && (activity.GetInfo(ctx).Attempt > 1 || activity.HasHeartbeatDetails(ctx))
}

// Begin starts to send the progress. stop must be called with whether the attempt has succeeded; a failed one sends a
// last time, for the next attempt. Outside of an activity nothing is sent.
func (d *Details[P]) Begin(ctx context.Context) (stop func(well bool)) {
	if !activity.IsActivity(ctx) {
		return func(bool) {}
	}
	every := activity.GetInfo(ctx).HeartbeatTimeout * 2 / 5 // if one is lost, the next arrives in time
	if every <= 0 {
		every = defaultInterval
	}
	done := make(chan struct{})
	var ending sync.WaitGroup
	ending.Go(func() { d.sendPeriodically(ctx, every, done) })
	return func(well bool) {
		close(done)
		ending.Wait()
		if !well {
			d.Send(ctx)
		}
	}
}

// sendPeriodically sends the progress whenever nothing was sent for the given interval.
func (d *Details[P]) sendPeriodically(ctx context.Context, every time.Duration, done <-chan struct{}) {
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			if d.sinceLastSent() >= every {
				d.Send(ctx) // this may block for a while
			}
			timer.Reset(max(every-d.sinceLastSent(), 0))
		case <-done:
			return
		}
	}
}

// Send sends the progress to Temporal, as soon as the SDK lets it through. Outside of an activity it does nothing.
func (d *Details[P]) Send(ctx context.Context) {
	if !activity.IsActivity(ctx) {
		return
	}
	d.mu.Lock()
	d.lastSent = time.Now()
	progress := d.progress
	d.mu.Unlock()
	activity.RecordHeartbeat(ctx, progress)
}

// sinceLastSent is the time since progress was last sent.
func (d *Details[P]) sinceLastSent() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.lastSent)
}

// Progress is the current progress.
func (d *Details[P]) Progress() P {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.progress
}

// Note changes the progress.
func (d *Details[P]) Note(change func(p *P)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.progress)
}

// ErrSuperseded means that Temporal has given the work to another attempt, or that the activity has ended.
var ErrSuperseded = errors.New("another attempt has taken over")

// recordTimeout is how long Temporal may take to acknowledge a heartbeat that must not be lost.
const recordTimeout = 2 * time.Second

// Recorder records an activity's heartbeat at once, as client.Client does.
type Recorder interface {
	RecordActivityHeartbeat(ctx context.Context, taskToken []byte, details ...any) error
}

// Record makes sure that Temporal has the current progress, bypassing the SDK's batching. It fails with ErrSuperseded
// when this attempt is no longer current: then it must not make its last write, whose result would be lost. If Temporal
// is unreachable the write goes ahead.
func (d *Details[P]) Record(ctx context.Context, recorder Recorder) error {
	if !activity.IsActivity(ctx) {
		return nil
	}
	if d.sinceLastSent() < maxThrottle {
		d.Send(ctx) // replaces an older one that the SDK still delays
	}
	call, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	if recorder == nil {
		recorder = activity.GetClient(ctx)
	}
	err := recorder.RecordActivityHeartbeat(call, activity.GetInfo(ctx).TaskToken, d.Progress())
	var missing *serviceerror.NotFound
	var cancelled *temporal.CanceledError
	switch {
	case errors.As(err, &missing):
		return ErrSuperseded
	case errors.As(err, &cancelled), errors.Is(err, activity.ErrActivityPaused),
		errors.Is(err, activity.ErrActivityReset):
		d.Send(ctx) // makes the SDK cancel the context, unless it throttles
		return ctx.Err()
	}
	return nil
}
