// Package recent answers a question once for all who ask it at about the same time.
package recent

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// most is how many answers are kept at once.
const most = 1000

// Answers keeps answers for a moment. Nobody who asks after a Forget gets an answer that was begun before it. The zero value is ready; a nil
// one keeps nothing.
type Answers struct {
	mu   sync.Mutex
	kept map[string]*answer
}

// answer is what one question is answered with.
type answer struct {
	// until is when nobody gets it any more who asks then, unless it is still being read.
	until time.Time
	// done is closed when value or err are there.
	done  chan struct{}
	value any
	err   error
}

func (a *answer) ready() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// Get answers a question from what is being read, or was begun to be read at most so long ago; else it reads. Everybody gets the same value: nobody
// may change it. An error is told to those who wait for it, and not kept. Reading goes on when whoever asked first goes away: it has to have
// limits of its own.
func Get[V any](ctx context.Context, a *Answers, question string, fresh time.Duration, read func(context.Context) (V, error)) (V, error) {
	if a == nil {
		return read(ctx)
	}
	var none V
	found, first := a.find(question, fresh)
	if first {
		go a.answer(question, found, func() (any, error) { return read(context.WithoutCancel(ctx)) })
	}
	select {
	case <-found.done:
	case <-ctx.Done():
		return none, ctx.Err()
	}
	if found.err != nil {
		return none, found.err
	}
	return found.value.(V), nil
}

// find is the answer to a question, perhaps one that is still to come; first says that nobody else reads it.
func (a *Answers) find(question string, fresh time.Duration) (found *answer, first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if found = a.kept[question]; found != nil && (now.Before(found.until) || !found.ready()) {
		return found, false
	}
	if len(a.kept) >= most {
		a.sweep(now)
	}
	found = &answer{until: now.Add(fresh), done: make(chan struct{})}
	if a.kept == nil {
		a.kept = map[string]*answer{}
	}
	a.kept[question] = found
	return found, true
}

// answer reads, and tells all who wait.
func (a *Answers) answer(question string, to *answer, read func() (any, error)) {
	defer func() {
		if value := recover(); value != nil {
			to.err = fmt.Errorf("panic: %v", value)
		}
		if to.err != nil {
			a.drop(question, to)
		}
		close(to.done)
	}()
	to.value, to.err = read()
}

func (a *Answers) drop(question string, of *answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.kept[question] == of {
		delete(a.kept, question)
	}
}

// sweep forgets what is too old to be given to anybody, and everything if that is not enough.
func (a *Answers) sweep(now time.Time) {
	for question, found := range a.kept {
		if !now.Before(found.until) && found.ready() {
			delete(a.kept, question)
		}
	}
	if len(a.kept) >= most {
		clear(a.kept)
	}
}

// Forget is for whoever has changed something: from now on everything is read anew.
func (a *Answers) Forget() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.kept)
}
