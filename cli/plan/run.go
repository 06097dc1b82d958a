package plan

import (
	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/task"
)

func runCommand(a *app.App) *cobra.Command {
	var person app.Who
	var key, output string
	var watch bool
	var options task.WatchOptions
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
		ValidArgsFunction: a.Complete(app.PlanNames),
		RunE: func(c *cobra.Command, args []string) error {
			if !watch {
				if given := options.Given(c); given != "" {
					return app.Usagef("--%s means nothing without --watch", given)
				}
			}
			api, err := a.ConnectToWrite(c)
			if err != nil {
				return err
			}
			started, err := startTask(a, c, api, args[0], app.KeyOrRandom(key), person)
			if err != nil {
				return err
			}
			if !watch {
				return printStarted(a, args[0], started, output)
			}
			if output == app.Table {
				a.Printf(a.Err, "task %s\n", started.Value.ID)
			}
			return task.Watch(c.Context(), a, api, started.Value.ID, options, output)
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	person.Flags(command)
	command.Flags().StringVar(&key, "key", "", "any `text` that is unique to this run, such as a pipeline's number (default: a random one)")
	command.Flags().BoolVarP(&watch, "watch", "w", false, "follow the task to its end")
	options.Flags(command)
	return command
}

// startTask executes the plan. When nobody can say whether the task was started, the error says how to ask again without starting another.
func startTask(a *app.App, c *cobra.Command, api *client.Client, name, key string, person app.Who) (apiclient.Reply[client.ExecuteResult], error) {
	task, err := apiclient.Read[client.ExecuteResult](api.ExecutePlan(c.Context(), name,
		&client.ExecutePlanParams{IdempotencyKey: &key, SlipwayVia: app.Via()},
		client.ExecuteRequest{Actor: person.Name(), Reason: person.Reason}))
	if apiclient.OutcomeUnknown(err) {
		a.Printf(a.Err, "Whether the task was started is not known. Repeated with the same key it is started once:\n  slipway plan run %s --key %s\n", name, key)
	}
	return task, err
}

func printStarted(a *app.App, name string, task apiclient.Reply[client.ExecuteResult], output string) error {
	if done, err := a.PrintObject(output, task.Raw); done || err != nil {
		return err
	}
	a.Printf(a.Out, "plan %s runs as task %s\n", name, task.Value.ID)
	a.Printf(a.Err, "Follow it with: slipway task watch %s\n", task.Value.ID)
	return nil
}
