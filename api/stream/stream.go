// Package stream serves the events of releases. All readers of a release share one follower.
package stream

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
	"golang.org/x/sync/semaphore"

	"slipway.io/slipway/api/limits"
	"slipway.io/slipway/api/problem"
)

// Hub manages the followers of releases: the first reader of a release starts its follower, the last one to leave stops
// it.
type Hub struct {
	mu        sync.Mutex
	closed    bool
	followers map[string]*follower
	running   sync.WaitGroup
	// maxOpen is the maximum number of streams being served; each acquires one of open.
	maxOpen int
	open    *semaphore.Weighted
	// byAddress limits the streams of one address.
	byAddress *limits.ByAddress
}

// follower keeps the broadcast of one release up to date.
type follower struct {
	events   *broadcast
	watchers int
	stop     context.CancelFunc
}

// NewHub returns a hub for at most most concurrent streams. byAddress limits those of one address; nil if all clients
// have credentials.
func NewHub(most int, byAddress *limits.ByAddress) *Hub {
	return &Hub{followers: map[string]*follower{}, maxOpen: most, open: semaphore.NewWeighted(int64(most)),
		byAddress: byAddress}
}

// watch joins the readers of a subject; for the first reader it runs follow until the last reader has left. Every
// reader must call leave.
func (h *Hub) watch(subject string, follow func(ctx context.Context, events *broadcast)) (events *broadcast,
	leave func()) {
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

var errShutdown = problem.Unreachable.Because("the engine is shutting down: reconnect in a few seconds")

// Close ends all streams and returns when all followers have stopped.
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

// event is one server-sent event. The zero event is empty.
type event struct {
	name string
	id   string
	data []byte
	// number increases with each event; readers use it to detect new events.
	number int64
}

// bytes returns the event in wire format. JSON contains no line breaks, so one data line suffices.
func (e event) bytes() []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "event: %s\n", e.name)
	if e.id != "" {
		fmt.Fprintf(&out, "id: %s\n", e.id)
	}
	fmt.Fprintf(&out, "data: %s\n\n", e.data)
	return out.Bytes()
}

// broadcast holds the latest event. Readers read the latest event when they are ready: a slow reader skips events, and
// blocks no other reader.
type broadcast struct {
	mu sync.Mutex
	broadcastState
}

func newBroadcast() *broadcast {
	return &broadcast{broadcastState: broadcastState{changed: make(chan struct{})}}
}

// publish makes the event the latest.
func (b *broadcast) publish(name, id string, data []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return
	}
	b.latest = event{name: name, id: id, data: data, number: b.latest.number + 1}
	b.announce()
}

// end closes the broadcast: with an error, or with nil when the release has ended.
func (b *broadcast) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return
	}
	b.ended, b.err = true, err
	b.announce()
}

func (b *broadcast) announce() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// broadcastState is the current state of a broadcast.
type broadcastState struct {
	latest event
	// ended means that no events will follow; err is the error that ended it, if any.
	ended bool
	err   error
	// changed is closed when the state changes.
	changed chan struct{}
}

func (b *broadcast) read() broadcastState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.broadcastState
}

const (
	// keepAlive is the interval of comment lines on a stream without events, so that no proxy closes it.
	keepAlive = 5 * time.Second
	// writeTimeout is how long a reader may take to accept one event before it is dropped.
	writeTimeout = 10 * time.Second
	// retryAfter is the Retry-After header, in seconds, of a reader that exceeds the limit.
	retryAfter = "10"
)

// Serve responds with the events of a release; subject is its key among all watched releases. The current state always
// comes first, so that a reader that reconnects needs no missed events. source is called once, for the first reader.
func (h *Hub) Serve(c echo.Context, subject string, source func() Source) error {
	release, ok := h.byAddress.Acquire(c.RealIP())
	if !ok {
		c.Response().Header().Set(echo.HeaderRetryAfter, retryAfter)
		return problem.TooManyStreams.Because("%d event streams are open already from this address, which is the "+
			"maximum for one address while the engine requires no credentials (--api-token-file): repeat it when "+
			"others have ended, or read the object itself", h.byAddress.Most())
	}
	defer release()
	if !h.open.TryAcquire(1) { // each stream holds a connection and two buffers for as long as its client wants
		c.Response().Header().Set(echo.HeaderRetryAfter, retryAfter)
		return problem.TooManyStreams.Because("%d event streams are open already, which is the maximum "+
			"(--max-event-streams): repeat it when others have ended, or read the object itself", h.maxOpen)
	}
	defer h.open.Release(1)
	events, leave := h.watch(subject, func(ctx context.Context, events *broadcast) {
		follow(ctx, subject, source(), events)
	})
	defer leave()
	ctx := c.Request().Context()
	if err := firstEvent(ctx, events); err != nil {
		return err
	}
	stream := eventStream{out: c.Response(), control: http.NewResponseController(c.Response().Writer)}
	return stream.run(ctx, events)
}

// firstEvent waits for the first event, so that an error can still be returned as a normal response.
func firstEvent(ctx context.Context, events *broadcast) error {
	for {
		now := events.read()
		if now.ended || now.latest.number > 0 {
			return now.err
		}
		select {
		case <-now.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// eventStream writes server-sent events to one reader.
type eventStream struct {
	out     *echo.Response
	control *http.ResponseController
}

func (s eventStream) run(ctx context.Context, events *broadcast) error {
	header := s.out.Header()
	header.Set(echo.HeaderContentType, "text/event-stream")
	header.Set(echo.HeaderCacheControl, "no-store")
	header.Set("X-Accel-Buffering", "no") // else nginx buffers events
	s.out.WriteHeader(http.StatusOK)
	ticker := time.NewTicker(keepAlive)
	defer ticker.Stop()
	// else it would apply to the connection's next request
	defer func() { _ = s.control.SetWriteDeadline(time.Time{}) }()
	seen := int64(0)
	for {
		now := events.read()
		if now.latest.number > seen {
			seen = now.latest.number
			if s.write(now.latest.bytes()) != nil {
				return nil // the reader has disconnected
			}
		}
		if now.ended {
			return nil
		}
		select {
		case <-now.changed:
		case <-ticker.C:
			if s.write([]byte(": still here\n\n")) != nil {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (s eventStream) write(data []byte) error {
	// A server without write deadlines still works: TCP then detects a dead reader.
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := s.out.Write(data); err != nil {
		return err
	}
	return s.control.Flush()
}
