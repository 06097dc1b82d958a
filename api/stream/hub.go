// Package stream serves the events of releases: any number of readers watch a release for the price of one follower.
package stream

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"slipway.io/slipway/api/problem"
)

// Hub lets any number of readers watch a release for the price of one: the first starts a follower, the last to leave ends it.
type Hub struct {
	mu        sync.Mutex
	closed    bool
	followers map[string]*follower
	running   sync.WaitGroup
	// open are the streams that are served, most is how many may be.
	open, most int
}

// follower keeps the broadcast of one release up to date.
type follower struct {
	events   *broadcast
	watchers int
	stop     context.CancelFunc
}

// NewHub is a hub without readers, for at most so many streams at once.
func NewHub(most int) *Hub { return &Hub{followers: map[string]*follower{}, most: most} }

// admit counts a stream until it ends, and refuses one too many: each holds a connection and the memory of two buffers for as long as its
// client likes.
func (h *Hub) admit() (end func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open >= h.most {
		return nil, problem.TooManyStreams.Because("%d event streams are open already, which is the most (--max-event-streams): repeat it when "+
			"others have ended, or read the object itself", h.most)
	}
	h.open++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.open--
	}, nil
}

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

// event is one event of a stream: name, ID and data as they are sent. The zero event says nothing.
type event struct {
	name string
	id   string
	data []byte
	// number grows with each event, so that a reader knows which it has seen.
	number int64
}

// bytes is the event as it goes over the wire. JSON has no line breaks in it, so that one data line holds it.
func (e event) bytes() []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "event: %s\n", e.name)
	if e.id != "" {
		fmt.Fprintf(&out, "id: %s\n", e.id)
	}
	fmt.Fprintf(&out, "data: %s\n\n", e.data)
	return out.Bytes()
}

// broadcast holds the latest event. Readers take what is latest when they are ready for it: a slow one misses what lay between, and nobody
// waits for it.
type broadcast struct {
	mu      sync.Mutex
	latest  event
	over    bool
	err     error
	changed chan struct{}
}

func newBroadcast() *broadcast { return &broadcast{changed: make(chan struct{})} }

// post makes the event the latest.
func (b *broadcast) post(name, id string, data []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
	b.latest = event{name: name, id: id, data: data, number: b.latest.number + 1}
	b.announce()
}

// end says that nothing more will come: after an error, or, with nil, since all is said.
func (b *broadcast) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
	b.over, b.err = true, err
	b.announce()
}

func (b *broadcast) announce() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// reading is what there is to read of a broadcast.
type reading struct {
	latest event
	// over says that nothing more will come, err why if that is an error.
	over bool
	err  error
	// changed is closed when there is more to read.
	changed <-chan struct{}
}

func (b *broadcast) read() reading {
	b.mu.Lock()
	defer b.mu.Unlock()
	return reading{b.latest, b.over, b.err, b.changed}
}
