package watch

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Queue holds the keys of objects to process. A key that was added several times is processed once, and never by two
// workers at a time.
type Queue[K comparable] struct {
	workqueue.TypedRateLimitingInterface[K]
}

// NewQueue returns a queue. The pause before a failed key is retried grows from the shortest to the longest.
func NewQueue[K comparable](shortest, longest time.Duration) Queue[K] {
	return Queue[K]{workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[K](shortest,
		longest))}
}

// Work is how the keys of a queue are processed.
type Work[K comparable] struct {
	// Do processes a key. It is called again after the returned time; 0: when the key is added again.
	Do func(ctx context.Context, key K) (again time.Duration, err error)
	// Workers is how many keys are processed at once; 0: one.
	Workers int
	// Timeout bounds one call of Do; 0: none.
	Timeout time.Duration
	// Failed is called with each failure; nil: no call.
	Failed func(key K, err error)
}

// Run processes the queue until the context ends, and shuts it down.
func (q Queue[K]) Run(ctx context.Context, w Work[K]) {
	var workers sync.WaitGroup
	for range max(w.Workers, 1) {
		workers.Go(func() {
			for q.next(ctx, w) {
			}
		})
	}
	<-ctx.Done()
	q.ShutDown()
	workers.Wait()
}

// next processes the next key; false if the queue is shut down.
func (q Queue[K]) next(ctx context.Context, w Work[K]) bool {
	key, stopping := q.Get()
	if stopping {
		return false
	}
	defer q.Done(key)
	call, cancel := ctx, func() {}
	if w.Timeout > 0 {
		call, cancel = context.WithTimeout(ctx, w.Timeout)
	}
	defer cancel()
	again, err := w.Do(call, key)
	if err != nil && ctx.Err() == nil {
		if w.Failed != nil {
			w.Failed(key, err)
		}
		q.AddRateLimited(key)
		return true
	}
	q.Forget(key)
	if again > 0 {
		q.AddAfter(key, again)
	}
	return true
}

// Background is a number of functions that run from Begin until Stop.
type Background struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// Begin starts the functions and returns at once. Their context ends at Stop.
func (b *Background) Begin(all ...func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	for _, run := range all {
		b.running.Go(func() { run(ctx) })
	}
}

// Stop ends the functions and waits until they have returned.
func (b *Background) Stop(context.Context) error {
	b.cancel()
	b.running.Wait()
	return nil
}

// Subscriptions wakes goroutines that wait for a change of a key. The zero value is usable.
type Subscriptions[K comparable] struct {
	mu      sync.Mutex
	waiting map[K]map[chan struct{}]struct{}
}

// Subscribe starts a subscription. wake receives a value when one of the keys has changed since the last value was
// received. leave must be called.
func (s *Subscriptions[K]) Subscribe(keys ...K) (wake chan struct{}, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == nil {
		s.waiting = map[K]map[chan struct{}]struct{}{}
	}
	wake = make(chan struct{}, 1)
	for _, key := range keys {
		if s.waiting[key] == nil {
			s.waiting[key] = map[chan struct{}]struct{}{}
		}
		s.waiting[key][wake] = struct{}{}
	}
	return wake, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, key := range keys {
			if delete(s.waiting[key], wake); len(s.waiting[key]) == 0 {
				delete(s.waiting, key)
			}
		}
	}
}

// Notify wakes all subscribers of a key.
func (s *Subscriptions[K]) Notify(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for wake := range s.waiting[key] {
		Wake(wake)
	}
}

// Wake sends a value unless one is pending already; the pending one covers this change too.
func Wake(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
