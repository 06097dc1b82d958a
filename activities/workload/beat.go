package workload

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"

	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/release/workloadops"
)

// errSuperseded says that Temporal has given the work to another attempt, or that nobody wants it any more.
var errSuperseded = errors.New("another attempt has taken over")

// beat is what one attempt knows, and leaves to the next.
type beat = heartbeat.Beat[workloadops.Progress]

// tell makes sure that Temporal has what is known now, past the SDK's batching. It fails with errSuperseded when this attempt is no longer wanted:
// then it must not make its last write, whose answer nobody would hear. Temporal being out of reach is no reason to hold the write back.
func tell(ctx context.Context, b *beat, recorder Recorder) error {
	if !activity.IsActivity(ctx) {
		return nil
	}
	details := b.Now()
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
