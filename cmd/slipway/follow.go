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

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/release/plan"
)

const (
	// firstBackoff and lastBackoff bound the pause before a lost stream is opened again; it doubles from the one to the other.
	firstBackoff = 500 * time.Millisecond
	lastBackoff  = 10 * time.Second
	// silence of a follower: the server says something every 15 s at least.
	silence = 45 * time.Second
)

// update is what a follower tells. One of its fields is set.
type update struct {
	task *plan.Task
	// stale says why the state may be out of date, as the server knows.
	stale string
	// lost says why the stream broke off; it is being opened again.
	lost string
}

// follower follows one task by its events, over lost connections and restarts of the server.
type follower struct {
	api *client.Client
	id  string
	// silence is how long nothing at all may arrive before the connection counts as dead.
	silence time.Duration
	wait    func(context.Context, time.Duration)
	lastID  string
}

// run reports to tell until the task is over, the context ends, or the API refuses; what it returns is nil only when the task is over.
func (f *follower) run(ctx context.Context, tell func(update)) error {
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
		tell(update{lost: lostBecause(err)})
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

var errOver = errors.New("the task is over")

// silentError: the connection is open and nothing comes.
type silentError time.Duration

func (e silentError) Error() string { return "nothing was heard for " + time.Duration(e).String() }

// once reads one stream to its end; seen says whether a state came.
func (f *follower) once(parent context.Context, tell func(update)) (seen bool, err error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	params := &client.WatchTaskParams{}
	if f.lastID != "" {
		params.LastEventID = &f.lastID
	}
	response, err := f.api.WatchTask(ctx, f.id, params)
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
			task := &plan.Task{}
			if err := json.Unmarshal(e.data, task); err != nil {
				return fmt.Errorf("the event %s cannot be read: %w", e.id, err)
			}
			seen = true
			tell(update{task: task})
			if over(*task) {
				return errOver
			}
		case "stale":
			note := struct{ Reason string }{}
			_ = json.Unmarshal(e.data, &note) // a stale event says enough by its name
			tell(update{stale: orDash(note.Reason)})
		}
		return nil
	})
	if cause := silentError(0); errors.As(context.Cause(ctx), &cause) {
		return seen, cause
	}
	return seen, err
}

// over says whether nothing of the task will change any more. A failed task waits for what still runs beside the failure.
func over(t plan.Task) bool { return t.State.Final() && t.FinishedAt != nil }

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
