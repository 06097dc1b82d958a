package attempt

import (
	"context"
	"time"

	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/release/workloadops"
)

// Details hold what an attempt knows, tell it to Temporal now and then, and leave it to the next attempt.
type Details interface {
	Now() workloadops.Progress
	Note(change func(p *workloadops.Progress))
	Begin(ctx context.Context) (stop func(well bool))
	Record(ctx context.Context, recorder heartbeat.Recorder) error
}

// Whole is an activity that runs several jobs, one after the other or, as one whole for each, side by side. They share its heartbeat and its place.
type Whole interface {
	Details
	// Begins says that a job begins, with what is known at its first attempt.
	Begins(first workloadops.Progress)
	// Until is when to give the place back; the zero time is at once, even while it waits for its turn. Moved says that what is waited for comes on, so that it may be kept.
	Until() time.Time
	Moved()
}

type wholeKey struct{}

// Within has the attempts that start with the context be parts of a whole.
func Within(ctx context.Context, whole Whole) context.Context {
	return context.WithValue(ctx, wholeKey{}, whole)
}
