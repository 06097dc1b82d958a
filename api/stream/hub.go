// Package stream serves the events of releases: any number of readers watch a release for the price of one follower.
package stream

import (
	"context"
	"sync"

	"slipway.io/slipway/api/problem"
)

// Hub lets any number of readers watch a release for the price of one: the first starts a follower, the last to leave ends it.
type Hub struct {
	mu        sync.Mutex
	closed    bool
	followers map[string]*follower
	running   sync.WaitGroup
}

// follower keeps the broadcast of one release up to date.
type follower struct {
	events   *broadcast
	watchers int
	stop     context.CancelFunc
}

// NewHub is a hub without readers.
func NewHub() *Hub { return &Hub{followers: map[string]*follower{}} }

// watch joins the readers of a subject; the first has follow run until the last has left. Whoever watches has to leave.
func (h *Hub) watch(subject string, follow func(ctx context.Context, events *broadcast)) (events *broadcast, leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.followers[subject]
	if f == nil {
		f = h.start(subject, follow)
	}
	f.watchers++
	return f.events, sync.OnceFunc(func() { h.leave(subject, f) })
}

func (h *Hub) start(subject string, follow func(ctx context.Context, events *broadcast)) *follower {
	ctx, stop := context.WithCancel(context.Background())
	f := &follower{events: newBroadcast(), stop: stop}
	if h.closed {
		f.events.end(errShutdown)
		stop()
		return f
	}
	h.followers[subject] = f
	h.running.Go(func() { follow(ctx, f.events) })
	return f
}

func (h *Hub) leave(subject string, f *follower) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f.watchers--
	if f.watchers == 0 {
		f.stop()
		if h.followers[subject] == f {
			delete(h.followers, subject)
		}
	}
}

var errShutdown = problem.Unreachable.Because("the engine is shutting down: come back in some seconds")

// Close ends all watching and returns when nobody follows any more.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	for _, f := range h.followers {
		f.stop()
		f.events.end(errShutdown)
	}
	h.mu.Unlock()
	h.running.Wait()
}
