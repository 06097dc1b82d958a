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

// Watched is a release (a task, rollout or serving) that is watched until it ends.
type Watched[T any] struct {
	// DisplayName is its name in messages, such as "task shop-1". ResumeCommand is the command that resumes watching
	// it.
	DisplayName, ResumeCommand string
	// Read reads it once. Open opens its event stream.
	Read func(ctx context.Context) (T, error)
	Open func(ctx context.Context, lastID *string) (*http.Response, error)
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
		view = &logView[T]{app: a, renderer: w.Renderer, silent: true}
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
	f.DurationVar(&o.Timeout, "timeout", 0, "stop watching after this time, such as 30m, while the "+w.Noun+
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
