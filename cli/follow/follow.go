// Package follow follows a release by its events to its end, over lost connections, and shows each change.
package follow

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/render"
)

// The pauses of a follower.
const (
	// FirstBackoff and lastBackoff bound the pause before a lost stream is opened again; it doubles from the one to the other.
	FirstBackoff = 500 * time.Millisecond
	LastBackoff  = 10 * time.Second
	// Silence of a follower: the server says something every 15 s at least.
	Silence = 45 * time.Second
)

// Update is what a follower tells of a release. One of its fields is set.
type Update[T any] struct {
	State *T
	// Stale says why the state may be out of date, as the server knows.
	Stale string
	// Lost says why the stream broke off; it is being opened again.
	Lost string
}

// Follower follows one release, a task or a rollout, by its events, over lost connections and restarts of the server.
type Follower[T any] struct {
	// Open opens the stream of events, from the event after lastID when that is not nil.
	Open func(ctx context.Context, lastID *string) (*http.Response, error)
	// Over says whether nothing of the release will change any more.
	Over func(T) bool
	// Silence is how long nothing at all may arrive before the connection counts as dead.
	Silence time.Duration
	Wait    func(context.Context, time.Duration)
	lastID  string
}

// Run reports to tell until the release is over, the context ends, or the API refuses; what it returns is nil only when the release
// is over.
func (f *Follower[T]) Run(ctx context.Context, tell func(Update[T])) error {
	pause := FirstBackoff
	for {
		seen, err := f.once(ctx, tell)
		var problem *apiclient.ProblemError
		switch {
		case errors.Is(err, errOver):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &problem) && refused(problem.Status):
			return err
		}
		if seen {
			pause = FirstBackoff
		}
		tell(Update[T]{Lost: lostBecause(err)})
		// Shaken a little, so that many followers do not come back all at once.
		f.Wait(ctx, pause+rand.N(pause/4))
		pause = min(2*pause, LastBackoff)
	}
}

// refused says whether an answer stays as it is, however often it is asked for. Room for another stream may come.
func refused(status int) bool {
	return status < http.StatusInternalServerError && status != http.StatusTooManyRequests
}

func lostBecause(err error) string {
	var unreachable *apiclient.UnreachableError
	switch {
	case err == nil:
		return "the server ended the stream"
	case errors.As(err, &unreachable):
		return apiclient.PlainCause(unreachable.Cause)
	}
	return err.Error()
}

var errOver = errors.New("the release is over")

// silentError: the connection is open and nothing comes.
type silentError time.Duration

func (e silentError) Error() string { return "nothing was heard for " + time.Duration(e).String() }

// once reads one stream to its end; seen says whether a state came.
func (f *Follower[T]) once(parent context.Context, tell func(Update[T])) (seen bool, err error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var last *string
	if f.lastID != "" {
		last = &f.lastID
	}
	response, err := f.Open(ctx, last)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	watched := &listener{stream: response.Body, silence: f.Silence,
		timer: time.AfterFunc(f.Silence, func() { cancel(silentError(f.Silence)) })}
	defer watched.timer.Stop()
	err = ReadEvents(watched, func(e Event) error {
		f.lastID = e.ID
		switch e.Name {
		case "state":
			state := new(T)
			if err := json.Unmarshal(e.Data, state); err != nil {
				return fmt.Errorf("the event %s cannot be read: %w", e.ID, err)
			}
			seen = true
			tell(Update[T]{State: state})
			if f.Over(*state) {
				return errOver
			}
		case "stale":
			note := struct{ Reason string }{}
			_ = json.Unmarshal(e.Data, &note) // a stale event says enough by its name
			tell(Update[T]{Stale: render.OrDash(note.Reason)})
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

// Event is one server-sent event.
type Event struct {
	// Name is the event's type, "message" when it has none.
	Name string
	// Id is the last ID that the stream has set.
	ID   string
	Data []byte
}

// ReadEvents reads server-sent events until the stream ends, which is no error, or the receiver returns one.
// The format is that of the HTML standard; lines end with LF or CRLF. An event that the end of the stream cuts off is dropped.
func ReadEvents(stream io.Reader, receive func(Event) error) error {
	reader := bufio.NewReaderSize(stream, 64<<10)
	current, lastID := Event{}, ""
	var data [][]byte
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			if len(data) > 0 {
				current.ID, current.Data = lastID, bytes.Join(data, []byte("\n"))
				if current.Name == "" {
					current.Name = "message"
				}
				if err := receive(current); err != nil {
					return err
				}
			}
			current, data = Event{}, nil
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			current.Name = string(value)
		case "data":
			data = append(data, value)
		case "id":
			if id := string(value); !strings.ContainsRune(id, 0) {
				lastID = id
			}
		}
	}
}
