package attempt

import (
	"sync"
	"time"
)

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
