package attempt

import (
	"context"
	"time"

	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/release/workload"
)

// Details hold the progress of an attempt, report it to Temporal from time to time, and pass it to the next attempt.
type Details interface {
	Progress() workload.Progress
	Note(change func(p *workload.Progress))
	Begin(ctx context.Context) (stop func(well bool))
	Record(ctx context.Context, recorder heartbeat.Recorder) error
}

// Parent is an activity that runs several jobs, one after the other, or in parallel with one Parent for each. The jobs
// share its heartbeat and its worker slot.
type Parent interface {
	Details
	// BeginPart starts a job, with the progress with which its first attempt begins.
	BeginPart(first workload.Progress)
	// SlotDeadline is when to free the worker slot; the zero time is at once, even while the attempt waits for a
	// request slot. Progressed reports that the awaited condition advanced, so the slot is kept.
	SlotDeadline() time.Time
	Progressed()
}

type parentKey struct{}

// WithParent makes the attempts that start with the context parts of parent.
func WithParent(ctx context.Context, parent Parent) context.Context {
	return context.WithValue(ctx, parentKey{}, parent)
}
