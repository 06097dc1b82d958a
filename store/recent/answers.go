// Package recent shares the result of a read among all callers that ask at about the same time.
package recent

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// maxAnswers is how many answers are cached at once.
const maxAnswers = 1000

// Cache keeps answers for a short time. A Get after Forget never returns a value whose read started before the Forget.
// The zero value is ready; a nil Cache keeps nothing.
type Cache struct {
	mu   sync.Mutex
	kept map[string]*answer
}

// answer is the result of one read.
type answer struct {
	// started is when the read began; each caller decides how old it may be. until is when the answer may be evicted.
	started, until time.Time
	// previous is the answer that is returned while this one is being read; nil: callers wait.
	previous *answer
	// done is closed when value or err is set.
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

// Get returns an answer whose read is in progress, or started at most fresh ago; otherwise it reads. All callers get
// the same value, which they must not modify. An error is returned to the waiting callers and not cached. A read
// continues when its first caller leaves, so it needs its own timeout.
func Get[V any](ctx context.Context, a *Cache, question string, fresh time.Duration,
	read func(context.Context) (V, error)) (V, error) {
	return GetStale(ctx, a, question, fresh, 0, read)
}

// GetStale is like Get, but does not wait while there is an answer that is older than fresh by less than spare: that
// one is returned while it is read again.
func GetStale[V any](ctx context.Context, a *Cache, question string, fresh, spare time.Duration,
	read func(context.Context) (V, error)) (V, error) {
	if a == nil {
		return read(ctx)
	}
	var none V
	found, started := a.find(question, fresh, spare)
	if started != nil {
		go a.fetch(question, started, func() (any, error) { return read(context.WithoutCancel(ctx)) })
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

// find returns the answer to a question, possibly one still being read; started is a new one that the caller has to
// read.
func (a *Cache) find(question string, fresh, spare time.Duration) (found, started *answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	found = a.kept[question]
	switch {
	case found == nil:
	case found.ready() && now.Sub(found.started) < fresh:
		return found, nil
	case !found.ready():
		return found.orPrevious(now.Add(-fresh - spare)), nil
	}
	if len(a.kept) >= maxAnswers {
		a.sweep(now)
	}
	started = &answer{started: now, until: now.Add(fresh + spare), previous: found, done: make(chan struct{})}
	if a.kept == nil {
		a.kept = map[string]*answer{}
	}
	a.kept[question] = started
	return started.orPrevious(now.Add(-fresh - spare)), started
}

// orPrevious returns the previous answer if its read started after oldest, otherwise this one.
func (a *answer) orPrevious(oldest time.Time) *answer {
	if a.previous != nil && a.previous.started.After(oldest) {
		return a.previous
	}
	return a
}

// fetch reads the answer and wakes all waiting callers.
func (a *Cache) fetch(question string, to *answer, read func() (any, error)) {
	defer func() {
		if value := recover(); value != nil {
			to.err = fmt.Errorf("panic: %v", value)
		}
		a.finish(question, to)
		close(to.done)
	}()
	to.value, to.err = read()
}

// finish drops the previous answer, or this one if it is an error.
func (a *Cache) finish(question string, of *answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := of.previous
	of.previous = nil
	switch {
	case of.err == nil || a.kept[question] != of:
	case before != nil:
		a.kept[question] = before // a caller within its spare time starts another read
	default:
		delete(a.kept, question)
	}
}

// sweep evicts expired answers, and all if that is not enough.
func (a *Cache) sweep(now time.Time) {
	for question, found := range a.kept {
		if !now.Before(found.until) && found.ready() {
			delete(a.kept, question)
		}
	}
	if len(a.kept) >= maxAnswers {
		clear(a.kept)
	}
}

// Forget drops all answers after a change: everything is read again.
func (a *Cache) Forget() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.kept)
}
