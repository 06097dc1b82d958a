package main

import (
	"errors"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
)

func (a *app) planRunCommand() *cobra.Command {
	var person who
	var key, output string
	var watch bool
	var options watchOptions
	command := &cobra.Command{
		Use:     "run NAME",
		Aliases: []string{"execute"},
		Short:   "Run a plan: start a task",
		Long: `Run a plan: start a task that carries out the plan and the catalogue entries as they are now. Everything is checked first,
in the catalogue and in the clusters; what cannot be done is refused with every reason, and nothing is changed.

With --watch the task is followed to its end, and the exit code says how it ended:

` + watchExitCodes + `

--idempotency-key makes a repeat safe: for 30 days the same key is the same task.`,
		Example: `  slipway plan run shop --reason "release 2.4" --watch
  slipway plan run shop --idempotency-key "$CI_PIPELINE_ID" --watch --timeout 30m`,
		Args:              exactName("a plan", "NAME"),
		ValidArgsFunction: a.complete(planNames),
		RunE: func(c *cobra.Command, args []string) error {
			if !watch {
				if given := options.given(c); given != "" {
					return usagef("--%s means nothing without --watch", given)
				}
			}
			api, err := a.connectToWrite(c)
			if err != nil {
				return err
			}
			task, err := a.startTask(c, api, args[0], keyOrRandom(key), person)
			if err != nil {
				return err
			}
			if !watch {
				return a.printStarted(args[0], task, output)
			}
			if output == outputTable {
				a.printf(a.err, "task %s\n", task.value.ID)
			}
			return a.watchTask(c.Context(), api, task.value.ID, options, output)
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	person.flags(command)
	command.Flags().StringVar(&key, "idempotency-key", "", "any `text` that is unique to this run, such as a pipeline's number (default: a random one)")
	command.Flags().BoolVarP(&watch, "watch", "w", false, "follow the task to its end")
	options.flags(command)
	return command
}

// startTask executes the plan. When nobody can say whether the task was started, the error says how to ask again without starting another.
func (a *app) startTask(c *cobra.Command, api *client.Client, name, key string, person who) (reply[client.ExecuteResult], error) {
	task, err := read[client.ExecuteResult](api.ExecutePlan(c.Context(), name,
		&client.ExecutePlanParams{IdempotencyKey: &key, SlipwayVia: via()},
		client.ExecuteRequest{Actor: person.name(), Reason: person.reason}))
	if outcomeUnknown(err) {
		a.printf(a.err, "Whether the task was started is not known. Repeated with the same key it is started once:\n  slipway plan run %s --idempotency-key %s\n", name, key)
	}
	return task, err
}

// outcomeUnknown says whether the request may have been carried out although there is no answer.
func outcomeUnknown(err error) bool {
	var problem *problemError
	var unreachable *unreachableError
	switch {
	case errors.As(err, &problem):
		return problem.Status >= 500
	case errors.As(err, &unreachable):
		return !unreachable.neverSent()
	}
	return false
}

func (a *app) printStarted(name string, task reply[client.ExecuteResult], output string) error {
	if done, err := a.printObject(output, task.raw); done || err != nil {
		return err
	}
	a.printf(a.out, "plan %s runs as task %s\n", name, task.value.ID)
	a.printf(a.err, "Follow it with: slipway task watch %s\n", task.value.ID)
	return nil
}
