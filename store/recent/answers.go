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
	// begun is when it was begun to be read: how old it may be is up to who asks. until is when it may make room for others.
	begun, until time.Time
	// before is the answer that is given while this one is being read; nil: who asks waits.
	before *answer
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
	return GetLately(ctx, a, question, fresh, 0, read)
}

// GetLately does as Get, but nobody waits while there is an answer that is older than fresh by less than spare: it is given once more while it is read anew.
func GetLately[V any](ctx context.Context, a *Answers, question string, fresh, spare time.Duration, read func(context.Context) (V, error)) (V, error) {
	if a == nil {
		return read(ctx)
	}
	var none V
	found, begun := a.find(question, fresh, spare)
	if begun != nil {
		go a.answer(question, begun, func() (any, error) { return read(context.WithoutCancel(ctx)) })
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

// find is the answer to a question, perhaps one that is still to come; begun is one that nobody reads yet.
func (a *Answers) find(question string, fresh, spare time.Duration) (found, begun *answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	found = a.kept[question]
	switch {
	case found == nil:
	case found.ready() && now.Sub(found.begun) < fresh:
		return found, nil
	case !found.ready():
		return found.orBefore(now.Add(-fresh - spare)), nil
	}
	if len(a.kept) >= most {
		a.sweep(now)
	}
	begun = &answer{begun: now, until: now.Add(fresh + spare), before: found, done: make(chan struct{})}
	if a.kept == nil {
		a.kept = map[string]*answer{}
	}
	a.kept[question] = begun
	return begun.orBefore(now.Add(-fresh - spare)), begun
}

// orBefore is the answer before this one if that was begun after the oldest that may be given.
func (a *answer) orBefore(oldest time.Time) *answer {
	if a.before != nil && a.before.begun.After(oldest) {
		return a.before
	}
	return a
}

// answer reads, and tells all who wait.
func (a *Answers) answer(question string, to *answer, read func() (any, error)) {
	defer func() {
		if value := recover(); value != nil {
			to.err = fmt.Errorf("panic: %v", value)
		}
		a.settle(question, to)
		close(to.done)
	}()
	to.value, to.err = read()
}

// settle forgets the answer before this one, or this one if it is an error.
func (a *Answers) settle(question string, of *answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := of.before
	of.before = nil
	switch {
	case of.err == nil || a.kept[question] != of:
	case before != nil:
		a.kept[question] = before // who asks while it may still be given has it read anew
	default:
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
