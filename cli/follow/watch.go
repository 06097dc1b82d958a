package follow

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.io/slipway/cli/app"
)

// Watched is a release, a task or a rollout, that is followed to its end.
type Watched[T any] struct {
	// Called is how people name it, "task shop-1"; again is the command that comes back to it.
	Called, Again string
	// Read reads it once, open opens its stream of events.
	Read func(ctx context.Context) (T, error)
	Open func(ctx context.Context, lastID *string) (*http.Response, error)
	// Over says whether nothing of it will change any more; ends, whether the watch ends here, and with which exit code.
	Over func(T) bool
	Ends func(T) (code int, ok bool)
	// Timeout is how long it is followed at most; 0: to its end.
	Timeout time.Duration
	// Silent has it say nothing to people but the last word.
	Silent   bool
	Portrait Portrait[T]
}

// ErrTimeout ends a watch whose --timeout is over.
var ErrTimeout = errors.New("the time to follow is over")

// Watch follows a release and ends with the exit code that says how it ended.
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
	// A release that does not exist and a server that is away are said at once; only what is lost later is waited for.
	first, err := w.Read(ctx)
	if err != nil {
		return w.broken(ctx, a, err)
	}
	view := NewView(a, w.Portrait)
	if w.Silent && a.Output == app.Table {
		view = &logView[T]{app: a, portrait: w.Portrait, silent: true}
	}
	defer view.Close()
	view.Show(Update[T]{State: &first})
	if code, ok := w.Ends(first); ok {
		return view.End(code)
	}
	code, err := w.follow(ctx, a, view)
	if err != nil {
		view.Close()
		return w.broken(ctx, a, err)
	}
	return view.End(code)
}

// follow shows every update until one of them ends the watch.
func (w Watched[T]) follow(parent context.Context, a *app.App, view view[T]) (code int, err error) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	follower := &Follower[T]{Open: w.Open, Over: w.Over, Silence: Silence, Wait: a.Wait}
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
				if code, ok := w.Ends(*u.State); ok {
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

// broken says why the watch ended although the release did not.
func (w Watched[T]) broken(ctx context.Context, a *app.App, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), ErrTimeout):
		return &app.ExitError{Code: app.ExitTimeout, Err: fmt.Errorf("%s is not over after %s; it goes on", w.Called, w.Timeout)}
	case ctx.Err() != nil:
		noun, _, _ := strings.Cut(w.Called, " ")
		a.Printf(a.Err, "The %s goes on. To come back to it: %s\n", noun, w.Again)
		return &app.ExitError{Code: app.ExitSignal}
	}
	return err
}

// Options say when a watch ends before the release does.
type Options struct {
	Timeout                                         time.Duration
	ExitOnInterrupted, ExitOnPaused, ThroughFailure bool
	// Watch is --watch of a command that starts a release.
	Watch bool

	names []string
}

// Words are what the help says of a kind of release.
type Words struct {
	// Noun is what one is called, and End where a watch of it ends: "to its end".
	Noun, End string
	// Interrupted and Paused are the states in which a watch may end: "the task is Paused".
	Interrupted, Paused string
	// Failed is why a watch goes on when the release has failed; "" where it cannot.
	Failed string
}

// Flags adds the flags of a watch.
func (o *Options) Flags(command *cobra.Command, w Words) {
	f := command.Flags()
	o.names = []string{"timeout", "exit-on-interrupted", "exit-on-paused"}
	f.DurationVar(&o.Timeout, "timeout", 0, "how long to follow at most, such as 30m; the "+w.Noun+" goes on. 0: "+w.End)
	f.BoolVar(&o.ExitOnInterrupted, "exit-on-interrupted", false, "end with exit code 4 when "+w.Interrupted)
	f.BoolVar(&o.ExitOnPaused, "exit-on-paused", false, "end with exit code 5 when "+w.Paused)
	if w.Failed != "" {
		o.names = append(o.names, "through-failure")
		f.BoolVar(&o.ThroughFailure, "through-failure", false, "go on when it has Failed: "+w.Failed)
	}
}

// StartFlags adds --watch and the flags of a watch to a command that starts a release.
func (o *Options) StartFlags(command *cobra.Command, w Words) {
	command.Flags().BoolVarP(&o.Watch, "watch", "w", false, "follow the "+w.Noun+" "+w.End)
	o.Flags(command, w)
}

// Check refuses options of a watch without --watch.
func (o *Options) Check(command *cobra.Command) error {
	for _, name := range o.names {
		if command.Flags().Changed(name) && !o.Watch {
			return app.Usagef("--%s means nothing without --watch", name)
		}
	}
	return nil
}
