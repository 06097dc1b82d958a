package plan

import (
	"context"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/task"
)

func runCommand(n *plans) *cobra.Command {
	a := n.App
	var who app.Who
	var options follow.Options
	command := &cobra.Command{
		Use:     "run NAME",
		Aliases: []string{"execute"},
		Short:   "Run a plan: start a task",
		Long: `Run a plan: start a task that carries out the plan and the catalogue entries as they are now. Everything is checked first,
in the catalogue and in the clusters; what cannot be done is refused with every reason, and nothing is changed.

With --watch the task is followed to its end, and the exit code says how it ended:

` + task.WatchExitCodes + `

--key makes a repeat safe: for 30 days the same key is the same task.`,
		Example: `  slipway plan run shop --reason "release 2.4" --watch
  slipway plan run shop --key "$CI_PIPELINE_ID" --watch --timeout 30m`,
		Args:              app.ExactName("a plan", "NAME"),
		ValidArgsFunction: a.Complete(n.Completion),
	}
	a.Writing(command, func([]string) error { return options.Check(command) }, func(c *cobra.Command, api *client.Client, args []string) error {
		started, err := startTask(c.Context(), a, api, args[0], who)
		if err != nil {
			return err
		}
		id := started.Value.ID
		if options.Watch {
			if a.Output == app.Table {
				a.Printf(a.Err, "task %s\n", id)
			}
			return task.Watch(c.Context(), a, api, id, options)
		}
		if done, err := a.PrintObject(started.Raw); done || err != nil {
			return err
		}
		a.Printf(a.Out, "plan %s runs as task %s\n", args[0], id)
		a.Printf(a.Err, "Follow it with: slipway task watch %s\n", id)
		return nil
	})
	who.Flags(command, "any `text` that is unique to this run, such as a pipeline's number")
	options.StartFlags(command, task.Words)
	return command
}

// startTask executes the plan. When nobody can say whether the task was started, the error says how to ask again without starting another.
func startTask(ctx context.Context, a *app.App, api *client.Client, name string, who app.Who) (apiclient.Reply[client.ExecuteResult], error) {
	who.Complete()
	task, err := apiclient.Read[client.ExecuteResult](api.ExecutePlan(ctx, name, &client.ExecutePlanParams{IdempotencyKey: &who.Key},
		client.ExecuteRequest{Actor: who.Actor, Reason: who.Reason}))
	if apiclient.OutcomeUnknown(err) {
		a.Printf(a.Err, "Whether the task was started is not known. Repeated with the same key it is started once:\n  slipway plan run %s --key %s\n",
			name, who.Key)
	}
	return task, err
}
