package watch

import "sync"

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
