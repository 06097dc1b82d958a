package task

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/plan"
)

// WatchExitCodes is the part of the help that lists the exit codes of a watch.
const WatchExitCodes = `  0    Succeeded
  1    Failed, or the command itself failed
  2    wrong usage
  3    Stopped
  4    Interrupted, with --exit-on-interrupted
  5    Paused, with --exit-on-paused
  124  --timeout passed
  130  ended by Ctrl-C; the task goes on`

func watchCommand(a *app.App) *cobra.Command {
	var output string
	var options WatchOptions
	command := &cobra.Command{
		Use:   "watch ID",
		Short: "Follow a task to its end",
		Long: `Follow a task to its end. A terminal shows waves and services as they change; a pipe gets one line for each change, and
-o json or yaml the whole task at each change. A lost connection is opened again, however long that takes.

A task that is Paused or Interrupted waits for a person, and so does this command, unless told otherwise. The exit code says
how the task ended:

` + WatchExitCodes,
		Example: `  slipway task watch shop-20261102093000-k3v9q
  slipway task watch shop-20261102093000-k3v9q --timeout 30m --exit-on-interrupted --exit-on-paused`,
		Args:              app.ExactName("a task", "ID"),
		ValidArgsFunction: a.Complete(app.TaskIDs()),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := app.Connect(c)
			if err != nil {
				return err
			}
			return Watch(c.Context(), a, api, args[0], options, output)
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	options.Flags(command)
	return command
}

// WatchOptions say when a watch ends before the task does.
type WatchOptions struct {
	timeout           time.Duration
	exitOnInterrupted bool
	exitOnPaused      bool
}

// Flags adds the flags of a watch.
func (o *WatchOptions) Flags(command *cobra.Command) {
	command.Flags().DurationVar(&o.timeout, "timeout", 0, "how long to follow at most, such as 30m; the task goes on. 0: to its end")
	command.Flags().BoolVar(&o.exitOnInterrupted, "exit-on-interrupted", false, "end with exit code 4 when the task is Interrupted")
	command.Flags().BoolVar(&o.exitOnPaused, "exit-on-paused", false, "end with exit code 5 when the task is Paused")
}

// Given names one of the options that was given; empty: none was.
func (o *WatchOptions) Given(command *cobra.Command) string {
	name := ""
	command.Flags().Visit(func(f *pflag.Flag) {
		if f.Name == "timeout" || f.Name == "exit-on-interrupted" || f.Name == "exit-on-paused" {
			name = f.Name
		}
	})
	return name
}

// ends says with which exit code the watch ends in this state of the task; ok is false while it goes on.
func (o *WatchOptions) ends(t plan.Task) (code int, ok bool) {
	switch {
	case t.State == plan.TaskInterrupted && o.exitOnInterrupted:
		return app.ExitInterrupted, true
	case t.State == plan.TaskPaused && o.exitOnPaused:
		return app.ExitPaused, true
	case !Over(t):
		return 0, false
	case t.State == plan.TaskStopped:
		return app.ExitStopped, true
	case t.State == plan.TaskFailed:
		return app.ExitFailure, true
	}
	return app.ExitOK, true
}

// Watch follows the task and ends with the exit code that says how it ended.
func Watch(ctx context.Context, a *app.App, api *client.Client, id string, options WatchOptions, output string) error {
	return follow.Watch(ctx, a, follow.Watched[plan.Task]{
		Called: "task " + id, Again: "slipway task watch " + id,
		Read: func(ctx context.Context) (plan.Task, error) {
			task, err := apiclient.Read[client.Task](api.GetTask(ctx, id))
			return task.Value, err
		},
		Open: func(ctx context.Context, last *string) (*http.Response, error) {
			return api.WatchTask(ctx, id, &client.WatchTaskParams{LastEventID: last})
		},
		Over: Over, Ends: options.ends, Timeout: options.timeout,
		Portrait: follow.Portrait[plan.Task]{Fit: Fit, Changes: Changes, Epilogue: Epilogue},
	}, output)
}

// Over says whether nothing of the task will change any more. A failed task waits for what still runs beside the failure.
func Over(t plan.Task) bool { return t.State.Final() && t.FinishedAt != nil }

// Epilogue is the last word on a task, and what to do next.
func Epilogue(t plan.Task) string {
	took := ""
	if t.StartedAt != nil && t.FinishedAt != nil {
		took = " after " + render.ShortDuration(t.FinishedAt.Sub(*t.StartedAt))
	}
	next := fmt.Sprintf("Report: slipway task report %s", t.ID)
	if !t.State.Final() {
		next = fmt.Sprintf("To go on: slipway task resume %s", t.ID)
	}
	return fmt.Sprintf("task %s is %s%s\n%s", t.ID, t.State, took, next)
}
