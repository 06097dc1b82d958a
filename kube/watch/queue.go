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
