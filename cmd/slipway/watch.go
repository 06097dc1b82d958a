package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// watched is a release, a task or a rollout, that is followed to its end.
type watched[T any] struct {
	// called is how people name it, "task shop-1"; again is the command that comes back to it.
	called, again string
	// read reads it once, open opens its stream of events.
	read func(ctx context.Context) (T, error)
	open func(ctx context.Context, lastID *string) (*http.Response, error)
	// over says whether nothing of it will change any more; ends, whether the watch ends here, and with which exit code.
	over func(T) bool
	ends func(T) (code int, ok bool)
	// timeout is how long it is followed at most; 0: to its end.
	timeout time.Duration
	// silent has it say nothing to people but the last word.
	silent   bool
	portrait portrait[T]
}

var errTimeout = errors.New("the time to follow is over")

// watch follows a release and ends with the exit code that says how it ended.
func watch[T any](parent context.Context, a *app, w watched[T], output string) error {
	if w.timeout < 0 {
		return usagef("--timeout %s is negative", w.timeout)
	}
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	if w.timeout > 0 {
		ctx, cancel = context.WithTimeoutCause(parent, w.timeout, errTimeout)
		defer cancel()
	}
	// A release that does not exist and a server that is away are said at once; only what is lost later is waited for.
	first, err := w.read(ctx)
	if err != nil {
		return w.broken(ctx, a, err)
	}
	view := newView(a, output, w.portrait)
	if w.silent && output == outputTable {
		view = &lastWord[T]{app: a, portrait: w.portrait}
	}
	defer view.close()
	view.show(update[T]{state: &first})
	if code, ok := w.ends(first); ok {
		return view.end(code)
	}
	code, err := w.follow(ctx, a, view)
	if err != nil {
		view.close()
		return w.broken(ctx, a, err)
	}
	return view.end(code)
}

// follow shows every update until one of them ends the watch.
func (w watched[T]) follow(parent context.Context, a *app, view view[T]) (code int, err error) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	follower := &follower[T]{open: w.open, over: w.over, silence: silence, wait: a.wait}
	updates, ended := make(chan update[T]), make(chan error, 1)
	go func() {
		ended <- follower.run(ctx, func(u update[T]) {
			select {
			case updates <- u:
			case <-ctx.Done():
			}
		})
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case u := <-updates:
			view.show(u)
			if u.state != nil {
				if code, ok := w.ends(*u.state); ok {
					return code, nil
				}
			}
		case <-tick.C:
			view.tick()
		case err := <-ended:
			return 0, err
		}
	}
}

// broken says why the watch ended although the release did not.
func (w watched[T]) broken(ctx context.Context, a *app, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), errTimeout):
		return &exitError{code: exitTimeout, err: fmt.Errorf("%s is not over after %s; it goes on", w.called, w.timeout)}
	case ctx.Err() != nil:
		noun, _, _ := strings.Cut(w.called, " ")
		a.printf(a.err, "The %s goes on. To come back to it: %s\n", noun, w.again)
		return &exitError{code: exitSignal}
	}
	return err
}
