package heartbeat

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
)

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
