package task

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/plan"
)

// verb says what one of the commands that steer a task does.
type verb struct {
	name, short, long string
	// because is the reason that the example gives.
	because string
	// legalIn are the states in which the verb is worth completing.
	legalIn []plan.TaskState
	call    func(ctx context.Context, api *client.Client, id string, body client.VerbRequest) (*http.Response, error)
}

func verbs() []verb {
	return []verb{
		{name: string(plan.VerbPause), short: "Pause a task", because: "wait for the database team", legalIn: []plan.TaskState{plan.TaskPending, plan.TaskRunning},
			long: "Pause a task. What is being released is finished first; nothing new is begun until the task is resumed.",
			call: func(ctx context.Context, api *client.Client, id string, body client.VerbRequest) (*http.Response, error) {
				return api.PauseTask(ctx, id, &client.PauseTaskParams{SlipwayVia: app.Via()}, body)
			}},
		{name: string(plan.VerbResume), short: "Resume a task", because: "the database is ready", legalIn: []plan.TaskState{plan.TaskPausing, plan.TaskPaused, plan.TaskInterrupted},
			long: "Resume a task that is Pausing, Paused or Interrupted. It goes on where it was; what is done is not done again.",
			call: func(ctx context.Context, api *client.Client, id string, body client.VerbRequest) (*http.Response, error) {
				return api.ResumeTask(ctx, id, &client.ResumeTaskParams{SlipwayVia: app.Via()}, body)
			}},
		{name: string(plan.VerbStop), short: "Stop a task for good", because: "the release is called off",
			legalIn: []plan.TaskState{plan.TaskPending, plan.TaskRunning, plan.TaskPausing, plan.TaskPaused, plan.TaskInterrupted},
			long:    "Stop a task for good. What is being released is finished first; the rest is never begun. A stopped task cannot be resumed.",
			call: func(ctx context.Context, api *client.Client, id string, body client.VerbRequest) (*http.Response, error) {
				return api.StopTask(ctx, id, &client.StopTaskParams{SlipwayVia: app.Via()}, body)
			}},
	}
}

func verbCommands(a *app.App) []*cobra.Command {
	var commands []*cobra.Command
	for _, v := range verbs() {
		commands = append(commands, verbCommand(a, v))
	}
	return commands
}

func verbCommand(a *app.App, v verb) *cobra.Command {
	var person app.Who
	var key, output string
	command := &cobra.Command{
		Use:               v.name + " ID",
		Short:             v.short,
		Long:              v.long + " A refusal says why, and the exit code is 1.",
		Example:           fmt.Sprintf("  slipway task %s shop-20261102093000-k3v9q --reason %q", v.name, v.because),
		Args:              app.ExactName("a task", "ID"),
		ValidArgsFunction: a.Complete(app.TaskIDs(v.legalIn...)),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := a.ConnectToWrite(c)
			if err != nil {
				return err
			}
			key := app.KeyOrRandom(key)
			task, err := apiclient.Read[client.Task](v.call(c.Context(), api, args[0], client.VerbRequest{Actor: person.Name(), Reason: person.Reason, Key: key}))
			if apiclient.OutcomeUnknown(err) {
				a.Printf(a.Err, "Whether the command arrived is not known. Repeated with the same key it counts once:\n  slipway task %s %s --key %s\n", v.name, args[0], key)
			}
			if err != nil {
				return err
			}
			if done, err := a.PrintObject(output, task.Raw); done || err != nil {
				return err
			}
			a.Printf(a.Out, "task %s is %s: %s\n", task.Value.ID, task.Value.State, render.OneLine(task.Value.Reason))
			return nil
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	person.Flags(command)
	command.Flags().StringVar(&key, "key", "", "idempotency `key`: the same key again is the same command (default: a random one)")
	return command
}
