package attempt

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
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
