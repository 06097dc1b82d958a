// Package recent shares the result of a read among all callers that ask at about the same time.
package recent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/utils/lru"
)

// maxAnswers is how many answers are cached at once.
const maxAnswers = 1000

// Cache keeps answers for a short time. A Get after Forget never returns a value whose read started before the Forget.
// The zero value is ready; a nil Cache keeps nothing.
type Cache struct {
	reads singleflight.Group
	mu    sync.Mutex
	// kept are the answers by question, the recently used ones; nil before the first.
	kept *lru.Cache
	// forgets counts the calls of Forget: a read that started before the last one is neither kept nor shared.
	forgets int
}

// answer is the result of one read. started is when it began; each caller decides how old it may be.
type answer struct {
	started time.Time
	value   any
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
	a.mu.Lock()
	if a.kept == nil {
		a.kept = lru.New(maxAnswers)
	}
	found, _ := a.kept.Get(question)
	last, _ := found.(answer)
	age := time.Since(last.started)
	var reading <-chan singleflight.Result
	if age >= fresh {
		reading = a.read(question, func() (any, error) { return read(context.WithoutCancel(ctx)) })
	}
	a.mu.Unlock()
	if age < fresh+spare {
		return last.value.(V), nil
	}
	var none V
	select {
	case result := <-reading:
		if result.Err != nil {
			return none, result.Err
		}
		return result.Val.(V), nil
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// read joins the read that is in progress, or begins one. The caller holds mu.
func (a *Cache) read(question string, read func() (any, error)) <-chan singleflight.Result {
	now, forgets := time.Now(), a.forgets
	return a.reads.DoChan(fmt.Sprint(forgets, " ", question), func() (value any, err error) {
		defer func() {
			if cause := recover(); cause != nil {
				err = fmt.Errorf("panic: %v", cause)
			}
		}()
		if value, err = read(); err != nil {
			return nil, err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if forgets == a.forgets {
			a.kept.Add(question, answer{started: now, value: value})
		}
		return value, nil
	})
}

// Forget drops all answers after a change: everything is read again.
func (a *Cache) Forget() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forgets++
	if a.kept != nil {
		a.kept.Clear()
	}
}
