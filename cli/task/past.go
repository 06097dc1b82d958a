package task

import (
	"context"
	"errors"
	"net/http"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/plan"
)

func rerunCommand(n *tasks) *cobra.Command {
	var who app.Who
	var options follow.Options
	var times TimesFlags
	command := &cobra.Command{
		Use: "rerun ID", Short: "Run again what did not succeed in a task",
		Long: `Run again what did not succeed in a task that is over: a new task of the same plan, with those services of the old task that failed or were
never begun, in the same order. What the plan says by now doesn't matter; the catalogue is taken as it is now. The times of the old
execution hold again, unless --not-before or --times gives others.

With --watch the task is followed to its end, and the exit code says how it ended:

` + WatchExitCodes,
		Example:           `  slipway task rerun shop-20261102093000-k3v9q --reason "the image is there now" --watch`,
		ValidArgsFunction: n.App.Complete(completion(n, plan.TaskFailed, plan.TaskStopped)),
	}
	n.WritingOne(command, func() error { return errors.Join(options.Check(command), times.Read()) }, func(c *cobra.Command, api *client.Client, id string) error {
		return Start{Again: "slipway task rerun " + id + times.Arguments(), Told: "task " + id + " runs again as task ",
			Send: func(ctx context.Context, api *client.Client, key string, body client.ExecuteRequest) (*http.Response, error) {
				body.NotBefore, body.Windows, body.Freezes = times.NotBefore, times.Windows, times.Freezes
				return api.RerunTask(ctx, id, &client.RerunTaskParams{IdempotencyKey: &key}, body)
			}}.Run(c.Context(), n.App, api, who, options)
	})
	who.Flags(command, "any `text` that is unique to this run, such as a pipeline's number")
	options.StartFlags(command, Words)
	times.Register(command)
	return command
}

func reverseCommand(n *tasks) *cobra.Command {
	a := n.App
	var who app.Who
	var options follow.Options
	var run bool
	command := &cobra.Command{
		Use: "reverse ID", Short: "Create the plan that takes a task back",
		Long: `Create the plan that takes back what a task that is over has changed: pod templates, sizes and code packages, in reverse order. It is the plan
that the task's report ends with. A task has one such plan: a repeat finds it, edited or not.

Nothing is changed until the plan is run. --run runs it at once; with --watch as well, the exit code says how that ended, as for "slipway plan run".
The release windows and freezes of the task's plan don't hold the reverse back, so that a way back is always open.`,
		Example: `  slipway task reverse shop-20261102093000-k3v9q
  slipway task reverse shop-20261102093000-k3v9q --run --watch --reason "errors since 2.4"`,
		ValidArgsFunction: a.Complete(completion(n, plan.TaskSucceeded, plan.TaskFailed, plan.TaskStopped)),
	}
	n.WritingOne(command, func() error {
		if options.Watch && !run {
			return app.Usagef("--watch means nothing without --run: add --run")
		}
		return options.Check(command)
	}, func(c *cobra.Command, api *client.Client, id string) error {
		made, err := apiclient.Read[client.ReversePlan](api.ReverseTask(c.Context(), id))
		if err != nil {
			return err
		}
		for _, note := range made.Value.Notes {
			a.Printf(a.Err, "note: %s\n", render.OneLine(note))
		}
		if run {
			return RunPlan(made.Value.Name, TimesFlags{}).Run(c.Context(), a, api, who, options)
		}
		if done, err := a.PrintObject(made.Raw); done || err != nil {
			return err
		}
		what := "created"
		if !made.Value.Created {
			what = "is there already"
		}
		a.Printf(a.Out, "plan %s %s\n", made.Value.Name, what)
		a.Printf(a.Err, "See what it would change: slipway plan diff %s\nRun it: slipway plan run %s\n", made.Value.Name, made.Value.Name)
		return nil
	})
	command.Flags().BoolVar(&run, "run", false, "run the plan at once, also within a freeze of the task's plan")
	who.Flags(command, "with --run: any `text` that is unique to this run, such as a pipeline's number")
	options.StartFlags(command, Words)
	return command
}

// HistoryTitles and HistoryRow are the table of a plan's past tasks.
var HistoryTitles = []string{"TASK", "STATE", "STARTED", "TOOK", "BY", "DONE", "FAILED", "FROM", "REASON"}

// HistoryRow is a row of HistoryTitles.
func HistoryRow(a *app.App, t client.TaskSummary) []string {
	done, failed := "", ""
	if s := t.Services; s != nil {
		done = render.Fraction(s.Succeeded, s.Total)
		if s.Failed > 0 {
			failed = render.Fraction(s.Failed, s.Total)
		}
	}
	started := ""
	if t.StartedAt != nil {
		started = render.Clock(*t.StartedAt, a.Now())
	}
	return []string{t.ID, string(t.State), started, a.Took(t.StartedAt, t.FinishedAt), t.Actor, done, failed, origin(t), render.Cell(t.Reason)}
}

// origin says which earlier task a task goes back to.
func origin(t client.TaskSummary) string {
	switch {
	case t.RerunOf != "":
		return "rerun of " + t.RerunOf
	case t.ReverseOf != "":
		return "reverse of " + t.ReverseOf
	}
	return ""
}

// PageOfTasks is one page of the tasks of a plan.
func PageOfTasks(ctx context.Context, api *client.Client, ofPlan string, limit int, cursor *string) ([]client.TaskSummary, string, error) {
	return pages(client.ListTasksParams{Plan: &ofPlan})(ctx, api, limit, cursor)
}
