package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/release/plan"
)

const watchExitCodes = `  0    Succeeded
  1    Failed, or the command itself failed
  2    wrong usage
  3    Stopped
  4    Interrupted, with --exit-on-interrupted
  5    Paused, with --exit-on-paused
  124  --timeout passed
  130  ended by Ctrl-C; the task goes on`

func (a *app) taskWatchCommand() *cobra.Command {
	var output string
	var options watchOptions
	command := &cobra.Command{
		Use:   "watch ID",
		Short: "Follow a task to its end",
		Long: `Follow a task to its end. A terminal shows waves and services as they change; a pipe gets one line for each change, and
-o json or yaml the whole task at each change. A lost connection is opened again, however long that takes.

A task that is Paused or Interrupted waits for a person, and so does this command, unless told otherwise. The exit code says
how the task ended:

` + watchExitCodes,
		Example: `  slipway task watch shop-20261102093000-k3v9q
  slipway task watch shop-20261102093000-k3v9q --timeout 30m --exit-on-interrupted --exit-on-paused`,
		Args:              exactName("a task", "ID"),
		ValidArgsFunction: a.complete(taskIDs()),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := connect(c)
			if err != nil {
				return err
			}
			return a.watchTask(c.Context(), api, args[0], options, output)
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	options.flags(command)
	return command
}

// watchOptions say when a watch ends before the task does.
type watchOptions struct {
	timeout           time.Duration
	exitOnInterrupted bool
	exitOnPaused      bool
}

func (o *watchOptions) flags(command *cobra.Command) {
	command.Flags().DurationVar(&o.timeout, "timeout", 0, "how long to follow at most, such as 30m; the task goes on. 0: to its end")
	command.Flags().BoolVar(&o.exitOnInterrupted, "exit-on-interrupted", false, "end with exit code 4 when the task is Interrupted")
	command.Flags().BoolVar(&o.exitOnPaused, "exit-on-paused", false, "end with exit code 5 when the task is Paused")
}

// given names one of the options that was given; empty: none was.
func (o *watchOptions) given(command *cobra.Command) string {
	name := ""
	command.Flags().Visit(func(f *pflag.Flag) {
		if f.Name == "timeout" || f.Name == "exit-on-interrupted" || f.Name == "exit-on-paused" {
			name = f.Name
		}
	})
	return name
}

// ends says with which exit code the watch ends in this state of the task; ok is false while it goes on.
func (o *watchOptions) ends(t plan.Task) (code int, ok bool) {
	switch {
	case t.State == plan.TaskInterrupted && o.exitOnInterrupted:
		return exitInterrupted, true
	case t.State == plan.TaskPaused && o.exitOnPaused:
		return exitPaused, true
	case !over(t):
		return 0, false
	case t.State == plan.TaskStopped:
		return exitStopped, true
	case t.State == plan.TaskFailed:
		return exitFailure, true
	}
	return exitOK, true
}

var errTimeout = errors.New("the time to follow is over")

// watchTask follows the task and ends with the exit code that says how it ended.
func (a *app) watchTask(parent context.Context, api *client.Client, id string, options watchOptions, output string) error {
	if options.timeout < 0 {
		return usagef("--timeout %s is negative", options.timeout)
	}
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	if options.timeout > 0 {
		ctx, cancel = context.WithTimeoutCause(parent, options.timeout, errTimeout)
		defer cancel()
	}
	// A task that does not exist and a server that is away are said at once; only what is lost later is waited for.
	first, err := read[client.Task](api.GetTask(ctx, id))
	if err != nil {
		return a.watchEnded(ctx, id, options, err)
	}
	view := a.view(output)
	defer view.close()
	view.show(update{task: &first.value})
	if code, ok := options.ends(first.value); ok {
		return view.end(code)
	}
	code, err := a.followTask(ctx, &follower{api: api, id: id, silence: silence, wait: a.wait}, view, options)
	if err != nil {
		view.close()
		return a.watchEnded(ctx, id, options, err)
	}
	return view.end(code)
}

// followTask shows every update until one of them ends the watch.
func (a *app) followTask(parent context.Context, f *follower, view view, options watchOptions) (code int, err error) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	updates, ended := make(chan update), make(chan error, 1)
	go func() {
		ended <- f.run(ctx, func(u update) {
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
			if u.task != nil {
				if code, ok := options.ends(*u.task); ok {
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

// watchEnded says why the watch ended although the task did not.
func (a *app) watchEnded(ctx context.Context, id string, options watchOptions, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), errTimeout):
		return &exitError{code: exitTimeout, err: fmt.Errorf("task %s is not over after %s; it goes on", id, options.timeout)}
	case ctx.Err() != nil:
		a.printf(a.err, "The task goes on. To come back to it: slipway task watch %s\n", id)
		return &exitError{code: exitSignal}
	}
	return err
}
