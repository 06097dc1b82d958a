package main

import (
	"context"
	"fmt"
	"net/http"
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

// watchTask follows the task and ends with the exit code that says how it ended.
func (a *app) watchTask(ctx context.Context, api *client.Client, id string, options watchOptions, output string) error {
	return watch(ctx, a, watched[plan.Task]{
		called: "task " + id, again: "slipway task watch " + id,
		read: func(ctx context.Context) (plan.Task, error) {
			task, err := read[client.Task](api.GetTask(ctx, id))
			return task.value, err
		},
		open: func(ctx context.Context, last *string) (*http.Response, error) {
			return api.WatchTask(ctx, id, &client.WatchTaskParams{LastEventID: last})
		},
		over: over, ends: options.ends, timeout: options.timeout,
		portrait: portrait[plan.Task]{fit: drawing.fit, changes: changes, epilogue: a.epilogue},
	}, output)
}

// over says whether nothing of the task will change any more. A failed task waits for what still runs beside the failure.
func over(t plan.Task) bool { return t.State.Final() && t.FinishedAt != nil }

// epilogue is the last word on a task, and what to do next.
func (a *app) epilogue(t plan.Task) string {
	took := ""
	if t.StartedAt != nil && t.FinishedAt != nil {
		took = " after " + a.took(t.StartedAt, t.FinishedAt)
	}
	next := fmt.Sprintf("Report: slipway task report %s", t.ID)
	if !t.State.Final() {
		next = fmt.Sprintf("To go on: slipway task resume %s", t.ID)
	}
	return fmt.Sprintf("task %s is %s%s\n%s", t.ID, t.State, took, next)
}
