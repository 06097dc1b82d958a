package attempt

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/release/workload"
)

// RequestSlots bound how many attempts send requests to one cluster at once. Attempts above the bound wait here, where
// that costs nothing: a request that waits in an overloaded API server times out after the server has worked on it, and
// is then repeated.
type RequestSlots struct {
	slots *semaphore.Weighted
	// starters lets only one of the attempts that have not started yet wait for a slot at a time. So started work
	// finishes before much new work starts; otherwise the data of an attempt would be stale by the time it writes.
	starters *semaphore.Weighted
	// queued is the number of attempts that wait for a slot.
	queued atomic.Int64
}

// maxSlots is how many attempts may hold a slot at once.
const maxSlots = 64

// NewRequestSlots makes the slots of one cluster.
func NewRequestSlots() *RequestSlots {
	return &RequestSlots{slots: semaphore.NewWeighted(maxSlots), starters: semaphore.NewWeighted(1)}
}

// acquire waits for a slot.
func (t *RequestSlots) acquire(ctx context.Context, begun bool) error {
	if !begun {
		if err := t.starters.Acquire(ctx, 1); err != nil {
			return err
		}
		defer t.starters.Release(1)
	}
	return t.slots.Acquire(ctx, 1)
}

// LoadFactor is the number of attempts that want a slot per slot: 1 while none waits. Polling intervals are multiplied
// by it, so that attempts that have work to do get slots.
func (t *Attempt) LoadFactor() time.Duration {
	if t.options.Slots == nil {
		return 1
	}
	return 1 + time.Duration(t.options.Slots.queued.Load())/maxSlots
}

const (
	// aliveInterval is how often an attempt that waits for a slot records a sign of life.
	aliveInterval = time.Second
	// maxQueueExtension is by how much the wait for slots may lengthen an attempt: less than its activity's
	// StartToCloseTimeout allows.
	maxQueueExtension = 20 * time.Second
)

// withSlot calls do while it holds a request slot. unmade is the reason why do was not called. The wait for the slot
// does not count as waiting for the cluster.
func (t *Attempt) withSlot(ctx context.Context, do func()) (unmade error) {
	turns := t.options.Slots
	if err := t.checkStalled(); err != nil {
		return err
	}
	if turns == nil {
		do()
		return nil
	}
	if !turns.slots.TryAcquire(1) {
		from := t.options.Now()
		if err := t.awaitSlot(ctx, turns); err != nil {
			return err
		}
		t.extend(t.options.Now().Sub(from))
	}
	defer turns.slots.Release(1)
	t.options.InProgress = true
	do()
	return nil
}

// awaitSlot returns when the attempt has a slot, or with the error that ends it before.
func (t *Attempt) awaitSlot(ctx context.Context, turns *RequestSlots) error {
	queued, leave := context.WithCancel(ctx)
	defer leave()
	turns.queued.Add(1)
	defer turns.queued.Add(-1)
	given := make(chan error, 1)
	go func() { given <- turns.acquire(queued, t.options.InProgress) }()
	alive := time.NewTicker(aliveInterval)
	defer alive.Stop()
	for {
		var ends error
		select {
		case err := <-given:
			return err
		case <-alive.C:
			if ends = t.checkStalled(); ends == nil && t.parent != nil && t.parent.SlotDeadline().IsZero() {
				ends = t.notReady()
			}
		case <-Stopping(ctx):
			ends = t.notReady()
		}
		if ends == nil {
			continue
		}
		leave()
		if <-given == nil {
			turns.slots.Release(1)
		}
		return ends
	}
}

// extend lengthens the attempt by the time for which it waited for a slot.
func (t *Attempt) extend(d time.Duration) {
	if t.parent != nil {
		t.parent.Progressed()
		return
	}
	d = min(d, maxQueueExtension-t.queuedFor)
	t.queuedFor += d
	t.until = t.until.Add(d)
}

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
