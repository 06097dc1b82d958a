// Package follow watches a release by its event stream until it ends, across lost connections, and shows each change.
package follow

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/release/backoff"
)

// The pauses of a follower.
const (
	// FirstBackoff and LastBackoff bound the pause before a lost stream is reopened. Each retry doubles it.
	FirstBackoff = 500 * time.Millisecond
	LastBackoff  = 10 * time.Second
	// IdleTimeout is the time without data after which a connection counts as dead. The server sends something at least
	// every 15 s.
	IdleTimeout = 45 * time.Second
)

// Update is what a follower reports about a release. Exactly one field is set.
type Update[T any] struct {
	State *T
	// Stale is why the server's state may be out of date.
	Stale string
	// Lost is why the stream ended; the follower reopens it.
	Lost string
}

// Follower watches one release (a task, rollout or serving) by its event stream, across lost connections and server
// restarts.
type Follower[T any] struct {
	// Open opens the event stream. If lastID is not "", it starts with the event after that one.
	Open func(ctx context.Context, lastID string) (*http.Response, error)
	// Ended reports whether the release has ended, so that its state no longer changes.
	Ended func(T) bool
	// IdleTimeout is the time without data after which the connection counts as dead.
	IdleTimeout time.Duration
	Wait        func(context.Context, time.Duration)
	lastID      string
}

// Run calls report with every update until the release ends (it returns nil), the context ends, or the API returns a
// permanent error.
func (f *Follower[T]) Run(ctx context.Context, report func(Update[T])) error {
	for lost := 0; ; lost++ {
		seen, err := f.readStream(ctx, report)
		var problem *apiclient.ProblemError
		switch {
		case errors.Is(err, errEnded):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &problem) && isPermanent(problem.Status):
			return err
		}
		if seen {
			lost = 0
		}
		report(Update[T]{Lost: lossReason(err)})
		// Jitter keeps many followers from reconnecting at the same moment.
		pause := backoff.After(lost, FirstBackoff, LastBackoff)
		f.Wait(ctx, pause+rand.N(pause/4))
	}
}

// isPermanent reports whether retrying cannot change the response. 429 is temporary: the server limits the number of
// streams.
func isPermanent(status int) bool {
	return status < http.StatusInternalServerError && status != http.StatusTooManyRequests
}

func lossReason(err error) string {
	var unreachable *apiclient.UnreachableError
	switch {
	case err == nil:
		return "the server ended the stream"
	case errors.As(err, &unreachable):
		return apiclient.ShortCause(unreachable.Cause)
	}
	return err.Error()
}

var errEnded = errors.New("the release has ended")

// idleError means that the connection is open but no data arrived for this time.
type idleError time.Duration

func (e idleError) Error() string { return "no data received for " + time.Duration(e).String() }

// readStream reads one stream to its end; seen reports whether it contained a state.
func (f *Follower[T]) readStream(parent context.Context, report func(Update[T])) (seen bool, err error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	response, err := f.Open(ctx, f.lastID)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	watched := &idleResetReader{stream: response.Body, idleTimeout: f.IdleTimeout,
		timer: time.AfterFunc(f.IdleTimeout, func() { cancel(idleError(f.IdleTimeout)) })}
	defer watched.timer.Stop()
	err = ReadEvents(watched, func(e Event) error {
		f.lastID = e.ID
		switch e.Name {
		case "state":
			state := new(T)
			if err := json.Unmarshal(e.Data, state); err != nil {
				return fmt.Errorf("cannot decode event %s: %w", e.ID, err)
			}
			seen = true
			report(Update[T]{State: state})
			if f.Ended(*state) {
				return errEnded
			}
		case "stale":
			note := struct{ Reason string }{}
			_ = json.Unmarshal(e.Data, &note) // the reason is optional
			report(Update[T]{Stale: cmp.Or(note.Reason, "-")})
		}
		return nil
	})
	if cause := idleError(0); errors.As(context.Cause(ctx), &cause) {
		return seen, cause
	}
	return seen, err
}

// idleResetReader restarts the timer whenever data arrives.
type idleResetReader struct {
	stream      io.Reader
	idleTimeout time.Duration
	timer       *time.Timer
}

func (l *idleResetReader) Read(into []byte) (int, error) {
	n, err := l.stream.Read(into)
	if n > 0 {
		l.timer.Reset(l.idleTimeout)
	}
	return n, err
}

// Event is one server-sent event.
type Event struct {
	// Name is the event's type, "message" when it has none.
	Name string
	// ID is the last ID that the stream has set.
	ID   string
	Data []byte
}

// ReadEvents reads server-sent events until the stream ends (it returns nil) or receive returns an error. The format is
// that of the HTML standard; lines end with LF or CRLF. An event that is cut off by the end of the stream is dropped.
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

// Watched is a release (a task, rollout or serving) that is watched until it ends.
type Watched[T any] struct {
	// DisplayName is its name in messages, such as "task shop-1". ResumeCommand is the command that resumes watching
	// it.
	DisplayName, ResumeCommand string
	// Read reads it once. Open opens its event stream.
	Read func(ctx context.Context) (T, error)
	Open func(ctx context.Context, lastID string) (*http.Response, error)
	// Ended reports whether its state no longer changes. ExitCode reports whether the watch ends in this state, and
	// with which exit code.
	Ended    func(T) bool
	ExitCode func(T) (code int, ok bool)
	// Timeout bounds the watch; 0 means no limit.
	Timeout time.Duration
	// Silent suppresses all text output except the final lines.
	Silent   bool
	Renderer Renderer[T]
}

// ErrTimeout ends a watch after --timeout.
var ErrTimeout = errors.New("watch timed out")

// Watch watches a release and returns an error with the exit code for its outcome.
func Watch[T any](parent context.Context, a *app.App, w Watched[T]) error {
	if w.Timeout < 0 {
		return app.Usagef("--timeout %s is negative", w.Timeout)
	}
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	if w.Timeout > 0 {
		ctx, cancel = context.WithTimeoutCause(parent, w.Timeout, ErrTimeout)
		defer cancel()
	}
	// A missing release or an unreachable server is reported immediately. Only connections lost later are retried.
	first, err := w.Read(ctx)
	if err != nil {
		return w.earlyEndError(ctx, a, err)
	}
	view := NewView(a, w.Renderer)
	if w.Silent && a.Output == app.Table {
		view = &plainView[T]{app: a, renderer: w.Renderer, silent: true}
	}
	defer view.Close()
	view.Show(Update[T]{State: &first})
	if code, ok := w.ExitCode(first); ok {
		return view.End(code)
	}
	code, err := w.follow(ctx, a, view)
	if err != nil {
		view.Close()
		return w.earlyEndError(ctx, a, err)
	}
	return view.End(code)
}

// follow shows every update until one of them ends the watch.
func (w Watched[T]) follow(parent context.Context, a *app.App, view view[T]) (code int, err error) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	follower := &Follower[T]{Open: w.Open, Ended: w.Ended, IdleTimeout: IdleTimeout, Wait: a.Wait}
	updates, ended := make(chan Update[T]), make(chan error, 1)
	go func() {
		ended <- follower.Run(ctx, func(u Update[T]) {
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
			view.Show(u)
			if u.State != nil {
				if code, ok := w.ExitCode(*u.State); ok {
					return code, nil
				}
			}
		case <-tick.C:
			view.Tick()
		case err := <-ended:
			return 0, err
		}
	}
}

// earlyEndError returns the error of a watch that ended before the release.
func (w Watched[T]) earlyEndError(ctx context.Context, a *app.App, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), ErrTimeout):
		return &app.ExitError{Code: app.ExitTimeout,
			Err: fmt.Errorf("%s has not ended after %s; it continues on the server", w.DisplayName, w.Timeout)}
	case ctx.Err() != nil:
		noun, _, _ := strings.Cut(w.DisplayName, " ")
		a.Printf(a.Err, "The %s continues on the server. To watch it again: %s\n", noun, w.ResumeCommand)
		return &app.ExitError{Code: app.ExitSignal}
	}
	return err
}

// Options are the flags of a watch. They say in which states it ends before the release does.
type Options struct {
	Timeout                                         time.Duration
	ExitOnInterrupted, ExitOnPaused, ThroughFailure bool
	// Watch is the flag --watch of a command that starts a release.
	Watch bool

	names []string
}

// FlagTexts are the parts of the flags' help that depend on the kind of release.
type FlagTexts struct {
	// Noun is the kind of release. Until is how long a watch lasts, such as "until it ends".
	Noun, Until string
	// Interrupted and Paused describe the states in which a watch may end, such as "the task is Paused".
	Interrupted, Paused string
	// Failed is why a watch may continue after a failure; "" if it never does.
	Failed string
}

// Flags adds the flags of a watch.
func (o *Options) Flags(command *cobra.Command, w FlagTexts) {
	f := command.Flags()
	o.names = []string{"timeout", "exit-on-interrupted", "exit-on-paused"}
	app.DurationFlag(command, &o.Timeout, "timeout", 0, "stop watching after this time, such as 30m, while the "+w.Noun+
		" continues; 0 watches "+w.Until)
	f.BoolVar(&o.ExitOnInterrupted, "exit-on-interrupted", false, "exit with code 4 when "+w.Interrupted)
	f.BoolVar(&o.ExitOnPaused, "exit-on-paused", false, "exit with code 5 when "+w.Paused)
	if w.Failed != "" {
		o.names = append(o.names, "through-failure")
		f.BoolVar(&o.ThroughFailure, "through-failure", false, "keep watching after it has Failed: "+w.Failed)
	}
}

// StartFlags adds --watch and the flags of a watch to a command that starts a release.
func (o *Options) StartFlags(command *cobra.Command, w FlagTexts) {
	command.Flags().BoolVarP(&o.Watch, "watch", "w", false, "watch the "+w.Noun+" "+w.Until)
	o.Flags(command, w)
	app.AcceptYes(command)
}

// Check returns an error if a flag of the watch was given without --watch.
func (o *Options) Check(command *cobra.Command) error {
	for _, name := range o.names {
		if command.Flags().Changed(name) && !o.Watch {
			return app.Usagef("--%s requires --watch", name)
		}
	}
	return nil
}
