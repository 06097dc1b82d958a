// Package gather asks once for many what many ask at about the same time.
package gather

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Limits of what is asked at once. The zero value is that of Default.
type Limits struct {
	// Patience is how long a question waits at most for company, and for the answer to those before it.
	Patience time.Duration
	// Questions and Bytes bound what is asked at once. A single question is asked however large it is.
	Questions, Bytes int
	// Running is how many times one is asked at once. What comes then waits in line, where Waiting questions find room.
	Running, Waiting int
}

// Default keeps what is asked at once, and its answers, well below the 2 MiB that Temporal carries in one payload.
var Default = Limits{Patience: 50 * time.Millisecond, Questions: 16, Bytes: 256 << 10, Running: 3, Waiting: 256}

// ErrBusy is the answer to a question for which there is no room in the line.
var ErrBusy = errors.New("too many wait in line")

// Questions gathers questions to each of those who are asked. One that comes while nothing is being asked goes at once; one that comes while others are
// being answered waits for that, with all that come meanwhile. The zero value is ready; a nil one gathers nothing. It is safe for concurrent use.
type Questions[Q, A any] struct {
	Limits Limits

	mu    sync.Mutex
	asked map[string]*asked[Q, A]
}

// asked is what is being asked of one, and what waits.
type asked[Q, A any] struct {
	limits  Limits
	running int
	waiting *batch[Q, A]
	// line are batches that are full, and go as soon as one is asked less.
	line []*batch[Q, A]
}

// inLine is how many questions are not being asked yet.
func (a *asked[Q, A]) inLine() (n int) {
	for _, b := range a.line {
		n += len(b.questions)
	}
	if a.waiting != nil {
		n += len(a.waiting.questions)
	}
	return n
}

// batch are questions that are asked together.
type batch[Q, A any] struct {
	ask       func([]Q) ([]A, error)
	questions []Q
	bytes     int
	patience  *time.Timer
	// done is closed when answers or err are there.
	done    chan struct{}
	answers []A
	err     error
}

// Ask has a question of that many bytes answered by whom it is for, together with others: ask is given all of them, and answers in their order. An error of it
// is told to all. It goes on when those who wait go away: it has to have limits of its own.
func (g *Questions[Q, A]) Ask(ctx context.Context, whom string, question Q, bytes int, ask func(context.Context, []Q) ([]A, error)) (A, error) {
	if g == nil {
		g = &Questions[Q, A]{}
	}
	lasting := context.WithoutCancel(ctx)
	var none A
	b, i := g.join(whom, question, bytes, func(all []Q) ([]A, error) { return ask(lasting, all) })
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

// join adds a question to those that wait, and begins with them if nothing is to be waited for.
func (g *Questions[Q, A]) join(whom string, question Q, bytes int, ask func([]Q) ([]A, error)) (*batch[Q, A], int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	limits := g.Limits
	if limits == (Limits{}) {
		limits = Default
	}
	if g.asked == nil {
		g.asked = map[string]*asked[Q, A]{}
	}
	of := g.asked[whom]
	if of == nil {
		of = &asked[Q, A]{limits: limits}
		g.asked[whom] = of
	}
	if of.inLine() >= limits.Waiting {
		return nil, 0
	}
	if b := of.waiting; b != nil && b.bytes+bytes > limits.Bytes {
		g.begin(whom, of)
	}
	b := of.waiting
	if b == nil {
		b = &batch[Q, A]{ask: ask, done: make(chan struct{})}
		of.waiting = b
		b.patience = time.AfterFunc(limits.Patience, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			if of.waiting == b && of.running < limits.Running {
				g.begin(whom, of)
			}
		})
	}
	b.questions, b.bytes = append(b.questions, question), b.bytes+bytes
	i := len(b.questions) - 1
	if of.running == 0 || len(b.questions) >= limits.Questions {
		g.begin(whom, of)
	}
	return b, i
}

// begin asks what waits, or has it stand in line. The caller holds mu.
func (g *Questions[Q, A]) begin(whom string, of *asked[Q, A]) {
	b := of.waiting
	of.waiting = nil
	b.patience.Stop()
	if of.running >= of.limits.Running {
		of.line = append(of.line, b)
		return
	}
	g.run(whom, of, b)
}

func (g *Questions[Q, A]) run(whom string, of *asked[Q, A], b *batch[Q, A]) {
	of.running++
	go func() {
		defer g.end(whom, of, b)
		b.answers, b.err = b.ask(b.questions)
		if b.err == nil && len(b.answers) != len(b.questions) {
			b.err = fmt.Errorf("%d questions had %d answers", len(b.questions), len(b.answers))
		}
	}()
}

// end tells those who wait for a batch, and goes on with those who came meanwhile.
func (g *Questions[Q, A]) end(whom string, of *asked[Q, A], b *batch[Q, A]) {
	if value := recover(); value != nil {
		b.err = fmt.Errorf("panic: %v", value)
	}
	close(b.done)
	g.mu.Lock()
	defer g.mu.Unlock()
	of.running--
	switch {
	case len(of.line) > 0:
		next := of.line[0]
		of.line = of.line[1:]
		g.run(whom, of, next)
	case of.waiting != nil:
		g.begin(whom, of)
	case of.running == 0:
		delete(g.asked, whom)
	}
}
