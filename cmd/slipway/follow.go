package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"
)

const (
	// firstBackoff and lastBackoff bound the pause before a lost stream is opened again; it doubles from the one to the other.
	firstBackoff = 500 * time.Millisecond
	lastBackoff  = 10 * time.Second
	// silence of a follower: the server says something every 15 s at least.
	silence = 45 * time.Second
)

// update is what a follower tells of a release. One of its fields is set.
type update[T any] struct {
	state *T
	// stale says why the state may be out of date, as the server knows.
	stale string
	// lost says why the stream broke off; it is being opened again.
	lost string
}

// follower follows one release, a task or a rollout, by its events, over lost connections and restarts of the server.
type follower[T any] struct {
	// open opens the stream of events, from the event after lastID when that is not nil.
	open func(ctx context.Context, lastID *string) (*http.Response, error)
	// over says whether nothing of the release will change any more.
	over func(T) bool
	// silence is how long nothing at all may arrive before the connection counts as dead.
	silence time.Duration
	wait    func(context.Context, time.Duration)
	lastID  string
}

// run reports to tell until the release is over, the context ends, or the API refuses; what it returns is nil only when the release is over.
func (f *follower[T]) run(ctx context.Context, tell func(update[T])) error {
	pause := firstBackoff
	for {
		seen, err := f.once(ctx, tell)
		var problem *problemError
		switch {
		case errors.Is(err, errOver):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &problem) && problem.Status < http.StatusInternalServerError:
			return err
		}
		if seen {
			pause = firstBackoff
		}
		tell(update[T]{lost: lostBecause(err)})
		// Shaken a little, so that many followers do not come back all at once.
		f.wait(ctx, pause+rand.N(pause/4))
		pause = min(2*pause, lastBackoff)
	}
}

func lostBecause(err error) string {
	var unreachable *unreachableError
	switch {
	case err == nil:
		return "the server ended the stream"
	case errors.As(err, &unreachable):
		return plainCause(unreachable.cause)
	}
	return err.Error()
}

var errOver = errors.New("the release is over")

// silentError: the connection is open and nothing comes.
type silentError time.Duration

func (e silentError) Error() string { return "nothing was heard for " + time.Duration(e).String() }

// once reads one stream to its end; seen says whether a state came.
func (f *follower[T]) once(parent context.Context, tell func(update[T])) (seen bool, err error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var last *string
	if f.lastID != "" {
		last = &f.lastID
	}
	response, err := f.open(ctx, last)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	watched := &listener{stream: response.Body, silence: f.silence, timer: time.AfterFunc(f.silence, func() { cancel(silentError(f.silence)) })}
	defer watched.timer.Stop()
	err = readEvents(watched, func(e event) error {
		f.lastID = e.id
		switch e.name {
		case "state":
			state := new(T)
			if err := json.Unmarshal(e.data, state); err != nil {
				return fmt.Errorf("the event %s cannot be read: %w", e.id, err)
			}
			seen = true
			tell(update[T]{state: state})
			if f.over(*state) {
				return errOver
			}
		case "stale":
			note := struct{ Reason string }{}
			_ = json.Unmarshal(e.data, &note) // a stale event says enough by its name
			tell(update[T]{stale: orDash(note.Reason)})
		}
		return nil
	})
	if cause := silentError(0); errors.As(context.Cause(ctx), &cause) {
		return seen, cause
	}
	return seen, err
}

// listener puts the timer off whenever something arrives.
type listener struct {
	stream  io.Reader
	silence time.Duration
	timer   *time.Timer
}

func (l *listener) Read(into []byte) (int, error) {
	n, err := l.stream.Read(into)
	if n > 0 {
		l.timer.Reset(l.silence)
	}
	return n, err
}
