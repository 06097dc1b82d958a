// Package gather batches concurrent requests to the same recipient into one call.
package gather

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Limits of a Batcher. The zero value means Default.
type Limits struct {
	// MaxDelay is how long a request waits at most for others to join its batch, while an earlier batch is running.
	MaxDelay time.Duration
	// BatchSize and BatchBytes limit a batch. A single request is sent regardless of its size.
	BatchSize, BatchBytes int
	// Concurrent is the maximum number of running batches per recipient. Further requests are queued, at most Queued of
	// them.
	Concurrent, Queued int
}

// Default keeps a batch and its results well below the 2 MiB that Temporal allows in one payload.
var Default = Limits{MaxDelay: 50 * time.Millisecond, BatchSize: 16, BatchBytes: 256 << 10, Concurrent: 3, Queued: 256}

// ErrBusy is returned when the queue is full.
var ErrBusy = errors.New("too many queued requests")

// Batcher batches requests by recipient. If no batch of the recipient is running, a request is sent immediately;
// otherwise it waits for the running batch or MaxDelay, together with all requests that arrive in the meantime. The
// zero value is ready to use; a nil Batcher does not batch. It is safe for concurrent use.
type Batcher[Q, A any] struct {
	Limits Limits

	mu         sync.Mutex
	recipients map[string]*recipient[Q, A]
}

// recipient holds the running and waiting batches of one recipient.
type recipient[Q, A any] struct {
	limits  Limits
	running int
	waiting *batch[Q, A]
	// queue are batches that no longer grow; each starts when a running one has finished.
	queue []*batch[Q, A]
}

// queued is the number of requests that are not yet sent.
func (a *recipient[Q, A]) queued() (n int) {
	for _, b := range a.queue {
		n += len(b.requests)
	}
	if a.waiting != nil {
		n += len(a.waiting.requests)
	}
	return n
}

// batch is a set of requests that are sent together.
type batch[Q, A any] struct {
	send     func([]Q) ([]A, error)
	requests []Q
	bytes    int
	delay    *time.Timer
	// done is closed when answers or err are set.
	done    chan struct{}
	answers []A
	err     error
}

// Do sends a request of the given size to a recipient, together with others: send gets all requests of the batch and
// returns the results in their order. Its error is returned to all callers. send does not stop when the callers'
// contexts end, so it needs its own time limit.
func (g *Batcher[Q, A]) Do(ctx context.Context, key string, question Q, bytes int,
	send func(context.Context, []Q) ([]A, error)) (A, error) {
	if g == nil {
		g = &Batcher[Q, A]{}
	}
	detached := context.WithoutCancel(ctx)
	var none A
	b, i := g.join(key, question, bytes, func(all []Q) ([]A, error) { return send(detached, all) })
	if b == nil {
		return none, ErrBusy
	}
	select {
	case <-b.done:
	case <-ctx.Done():
		return none, ctx.Err()
	}
	if b.err != nil {
		return none, b.err
	}
	return b.answers[i], nil
}

// join adds a request to the recipient's waiting batch, and starts the batch if it need not wait.
func (g *Batcher[Q, A]) join(key string, question Q, bytes int, send func([]Q) ([]A, error)) (*batch[Q, A], int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	limits := g.Limits
	if limits == (Limits{}) {
		limits = Default
	}
	if g.recipients == nil {
		g.recipients = map[string]*recipient[Q, A]{}
	}
	of := g.recipients[key]
	if of == nil {
		of = &recipient[Q, A]{limits: limits}
		g.recipients[key] = of
	}
	if of.queued() >= limits.Queued {
		return nil, 0
	}
	if b := of.waiting; b != nil && b.bytes+bytes > limits.BatchBytes {
		g.begin(key, of)
	}
	b := of.waiting
	if b == nil {
		b = &batch[Q, A]{send: send, done: make(chan struct{})}
		of.waiting = b
		b.delay = time.AfterFunc(limits.MaxDelay, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			if of.waiting == b && of.running < limits.Concurrent {
				g.begin(key, of)
			}
		})
	}
	b.requests, b.bytes = append(b.requests, question), b.bytes+bytes
	i := len(b.requests) - 1
	if of.running == 0 || len(b.requests) >= limits.BatchSize {
		g.begin(key, of)
	}
	return b, i
}

// begin queues the waiting batch. The caller holds mu.
func (g *Batcher[Q, A]) begin(key string, of *recipient[Q, A]) {
	of.waiting.delay.Stop()
	of.queue, of.waiting = append(of.queue, of.waiting), nil
	g.next(key, of)
}

// next starts queued batches, as many as may run. The caller holds mu.
func (g *Batcher[Q, A]) next(key string, of *recipient[Q, A]) {
	for len(of.queue) > 0 && of.running < of.limits.Concurrent {
		b := of.queue[0]
		of.queue, of.running = of.queue[1:], of.running+1
		go func() {
			defer g.end(key, of, b)
			b.answers, b.err = b.send(b.requests)
			if b.err == nil && len(b.answers) != len(b.requests) {
				b.err = fmt.Errorf("%d requests got %d results", len(b.requests), len(b.answers))
			}
		}()
	}
}

// end wakes the callers of a batch, and starts the next one.
func (g *Batcher[Q, A]) end(key string, of *recipient[Q, A], b *batch[Q, A]) {
	if value := recover(); value != nil {
		b.err = fmt.Errorf("panic: %v", value)
	}
	close(b.done)
	g.mu.Lock()
	defer g.mu.Unlock()
	of.running--
	if len(of.queue) == 0 && of.waiting != nil {
		g.begin(key, of)
	}
	g.next(key, of)
	if of.running == 0 {
		delete(g.recipients, key)
	}
}
