package workload

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"

	"slipway.io/slipway/release/operation"
)

// errSuperseded says that Temporal has given the work to another attempt, or that nobody wants it any more.
var errSuperseded = errors.New("another attempt has taken over")

// beat keeps what one attempt knows, tells it to Temporal now and then, and leaves it to the next attempt. The SDK sends the last heartbeat of an attempt that
// fails before it reports the failure, so that nothing is lost but by a crash.
type beat struct {
	mu       sync.Mutex
	progress operation.Progress
}

// startBeat takes over what the last attempt left, and begins to tell. stop must be called; it tells a last time.
func startBeat(ctx context.Context, req operation.Request) (b *beat, stop func()) {
	b = &beat{progress: operation.Progress{ElapsedSeconds: float64(req.SpentSeconds)}}
	if !activity.IsActivity(ctx) {
		return b, func() {}
	}
	var left operation.Progress
	if activity.HasHeartbeatDetails(ctx) && activity.GetHeartbeatDetails(ctx, &left) == nil {
		b.progress = left
	}
	every := activity.GetInfo(ctx).HeartbeatTimeout / 3
	if every <= 0 {
		every = 10 * time.Second
	}
	done := make(chan struct{})
	var ending sync.WaitGroup
	ending.Add(1)
	go func() {
		defer ending.Done()
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				activity.RecordHeartbeat(ctx, b.now())
			case <-done:
				return
			}
		}
	}()
	return b, func() {
		close(done)
		ending.Wait()
		activity.RecordHeartbeat(ctx, b.now())
	}
}

// now is what is known now.
func (b *beat) now() operation.Progress {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.progress
}

// note changes what is known.
func (b *beat) note(change func(p *operation.Progress)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.progress)
}

// tell makes sure that Temporal has what is known now, past the SDK's batching. It fails with errSuperseded when this attempt is no longer wanted:
// then it must not make its last write, whose answer nobody would hear. Temporal being out of reach is no reason to hold the write back.
func (b *beat) tell(ctx context.Context, recorder Recorder) error {
	if !activity.IsActivity(ctx) {
		return nil
	}
	details := b.now()
	activity.RecordHeartbeat(ctx, details)
	call, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if recorder == nil {
		recorder = activity.GetClient(ctx)
	}
	err := recorder.RecordActivityHeartbeat(call, activity.GetInfo(ctx).TaskToken, details)
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) {
		return errSuperseded
	}
	return nil
}
