package kube

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Subscriptions wake those who wait until something changes; keys name what. The zero value is usable.
type Subscriptions[K comparable] struct {
	mu      sync.Mutex
	waiting map[K]map[chan struct{}]struct{}
}

// Subscribe begins to listen. wake gets a value when one of the keys has changed since the last value was taken. leave must be called.
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

// Notify wakes everybody who waits for a key.
func (s *Subscriptions[K]) Notify(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for wake := range s.waiting[key] {
		Wake(wake)
	}
}

// Wake wakes one who waits. Who has not taken the last value yet sees this change as well.
func Wake(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// mistrust is how long a watch that reported an error is not relied on.
const mistrust = 30 * time.Second

// WatchTrouble remembers when a watch last reported an error, in Unix nanoseconds; 0 never.
type WatchTrouble struct{ at atomic.Int64 }

// Note notes an error, and says whether it is the first one.
func (t *WatchTrouble) Note(now time.Time) (first bool) { return t.at.Swap(now.UnixNano()) == 0 }

// Recent says that the watch cannot be relied on.
func (t *WatchTrouble) Recent(now time.Time) bool {
	at := t.at.Load()
	return at != 0 && now.Sub(time.Unix(0, at)) <= mistrust
}

// Work does what a queue asks until it is shut down. What fails is done again later.
func Work[K comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[K], do func(context.Context, K) error) {
	for {
		key, stopping := queue.Get()
		if stopping {
			return
		}
		if err := do(ctx, key); err != nil && ctx.Err() == nil {
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}
