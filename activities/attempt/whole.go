package attempt

import (
	"context"
	"sync"
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

// WorkerSlot is how long an activity keeps its worker slot: for listenFor after the awaited condition last advanced,
// and never beyond its end. It is safe for concurrent use.
type WorkerSlot struct {
	now       func() time.Time
	listenFor time.Duration

	mu sync.Mutex
	// until is when the slot is freed unless the condition advances, end when it is freed in any case.
	until, end time.Time
}

// NewWorkerSlot is the slot of an activity that starts now and takes at most longest.
func NewWorkerSlot(now func() time.Time, listenFor, longest time.Duration) *WorkerSlot {
	p := &WorkerSlot{now: now, listenFor: listenFor, end: now().Add(longest)}
	p.Progressed()
	return p
}

// SlotDeadline implements Parent.
func (p *WorkerSlot) SlotDeadline() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until
}

// Progressed implements Parent.
func (p *WorkerSlot) Progressed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = p.now().Add(p.listenFor)
	p.clamp()
}

// EndBy makes end the latest time at which the slot is freed; the zero time is at once.
func (p *WorkerSlot) EndBy(end time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if end.Before(p.end) {
		p.end = end
	}
	p.clamp()
}

func (p *WorkerSlot) clamp() {
	if p.end.Before(p.until) {
		p.until = p.end
	}
}
