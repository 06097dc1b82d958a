package traffic

import (
	"context"

	"go.temporal.io/sdk/activity"

	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/release/workloadops"
)

// progress is what an attempt hands on to the next one: the heartbeat details of rollout.ActivityRoute.
type progress struct {
	workloadops.Progress
	// Modified says that something was written.
	Modified bool `json:"modified,omitempty"`
}

type beat = heartbeat.Beat[progress]

// startBeat takes over what the last attempt left, and begins to tell. stop must be called.
func startBeat(ctx context.Context, spentSeconds int64) (b *beat, stop func()) {
	b, stop = heartbeat.Start(ctx, progress{Progress: workloadops.Progress{ElapsedSeconds: float64(spentSeconds)}})
	if activity.IsActivity(ctx) && activity.GetInfo(ctx).Attempt > 1 {
		b.Note(func(p *progress) { p.Modified = true }) // the last attempt may have died right after a write: rather wait the grace period once too often
	}
	return b, stop
}
