package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
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

func taskVerbs() []verb {
	return []verb{
		{name: string(plan.VerbPause), short: "Pause a task", because: "wait for the database team", legalIn: []plan.TaskState{plan.TaskPending, plan.TaskRunning},
			long: "Pause a task. What is being released is finished first; nothing new is begun until the task is resumed.",
			call: func(ctx context.Context, api *client.Client, id string, body client.VerbRequest) (*http.Response, error) {
				return api.PauseTask(ctx, id, &client.PauseTaskParams{SlipwayVia: via()}, body)
			}},
		{name: string(plan.VerbResume), short: "Resume a task", because: "the database is ready", legalIn: []plan.TaskState{plan.TaskPausing, plan.TaskPaused, plan.TaskInterrupted},
			long: "Resume a task that is Pausing, Paused or Interrupted. It goes on where it was; what is done is not done again.",
			call: func(ctx context.Context, api *client.Client, id string, body client.VerbRequest) (*http.Response, error) {
				return api.ResumeTask(ctx, id, &client.ResumeTaskParams{SlipwayVia: via()}, body)
			}},
		{name: string(plan.VerbStop), short: "Stop a task for good", because: "the release is called off",
			legalIn: []plan.TaskState{plan.TaskPending, plan.TaskRunning, plan.TaskPausing, plan.TaskPaused, plan.TaskInterrupted},
			long:    "Stop a task for good. What is being released is finished first; the rest is never begun. A stopped task cannot be resumed.",
			call: func(ctx context.Context, api *client.Client, id string, body client.VerbRequest) (*http.Response, error) {
				return api.StopTask(ctx, id, &client.StopTaskParams{SlipwayVia: via()}, body)
			}},
	}
}

func (a *app) taskVerbCommands() []*cobra.Command {
	var commands []*cobra.Command
	for _, v := range taskVerbs() {
		commands = append(commands, a.taskVerbCommand(v))
	}
	return commands
}

func (a *app) taskVerbCommand(v verb) *cobra.Command {
	var person who
	var key, output string
	command := &cobra.Command{
		Use:               v.name + " ID",
		Short:             v.short,
		Long:              v.long + " A refusal says why, and the exit code is 1.",
		Example:           fmt.Sprintf("  slipway task %s shop-20261102093000-k3v9q --reason %q", v.name, v.because),
		Args:              exactName("a task", "ID"),
		ValidArgsFunction: a.complete(taskIDs(v.legalIn...)),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := a.connectToWrite(c)
			if err != nil {
				return err
			}
			key := keyOrRandom(key)
			task, err := read[client.Task](v.call(c.Context(), api, args[0], client.VerbRequest{Actor: person.name(), Reason: person.reason, Key: key}))
			if outcomeUnknown(err) {
				a.printf(a.err, "Whether the command arrived is not known. Repeated with the same key it counts once:\n  slipway task %s %s --key %s\n", v.name, args[0], key)
			}
			if err != nil {
				return err
			}
			if done, err := a.printObject(output, task.raw); done || err != nil {
				return err
			}
			a.printf(a.out, "task %s is %s: %s\n", task.value.ID, task.value.State, oneLine(task.value.Reason))
			return nil
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	person.flags(command)
	command.Flags().StringVar(&key, "key", "", "idempotency `key`: the same key again is the same command (default: a random one)")
	return command
}
