package main

import (
	"bytes"
	"errors"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
)

const jsonBody = "application/json"

func (a *app) rolloutStartCommand() *cobra.Command {
	var request rolloutRequest
	var person who
	var key, output string
	var watch bool
	var options rolloutWatch
	command := &cobra.Command{
		Use:   "start",
		Short: "Start a canary or blue-green release of a workload",
		Long: `Start a canary or blue-green release of a workload. -f takes the request as "POST /api/v1/rollouts" does, or a whole Rollout
document (rollouts.kruise.io/v1beta1 or v1alpha1); flags complete it, or say everything. Everything is checked first, in the
document and in the workload's cluster; what cannot be done is refused with every reason, and nothing is changed.

With --watch the rollout is followed to its end, and the exit code says how it ended:

` + rolloutExitCodes + `

--idempotency-key makes a repeat safe: for 30 days the same key is the same rollout.`,
		Example: `  slipway rollout start -f canary.yaml --image app=registry/shop/web:2.4 --reason "release 2.4" --watch
  slipway rollout start -n shop --workload deployment/web --image app=registry/shop/web:2.4 --strategy-file strategy.yaml`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if given := options.given(c); !watch && given != "" {
				return usagef("--%s means nothing without --watch", given)
			}
			key = keyOrRandom(key)
			body, err := request.read(a, person, "")
			if err != nil {
				return err
			}
			api, err := a.connectToWrite(c)
			if err != nil {
				return err
			}
			started, err := a.startRollout(c, api, body, key)
			if err != nil {
				return err
			}
			name := rolloutName{started.value.Party, started.value.Namespace, started.value.Name}
			for _, w := range started.value.Warnings {
				a.printf(a.err, "warning: %s\n", oneLine(w))
			}
			if !watch {
				return a.printRolloutStarted(name, started, output)
			}
			if output == outputTable {
				a.printf(a.err, "rollout %s\n", name)
			}
			return a.watchRollout(c.Context(), api, name, options, output)
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	request.flags(command)
	person.flags(command)
	command.Flags().StringVar(&key, "idempotency-key", "", "any `text` that is unique to this release, such as a pipeline's number (default: a random one)")
	command.Flags().BoolVarP(&watch, "watch", "w", false, "follow the rollout to its end")
	options.flags(command)
	return command
}

// startRollout starts it. When nobody can say whether it was started, the error says how to ask again without starting another.
func (a *app) startRollout(c *cobra.Command, api *client.Client, body requestBody, key string) (reply[client.RolloutStarted], error) {
	started, err := read[client.RolloutStarted](api.StartRolloutWithBody(c.Context(),
		&client.StartRolloutParams{IdempotencyKey: &key, SlipwayVia: via()}, jsonBody, bytes.NewReader(body.text)))
	var problem *problemError
	if errors.As(err, &problem) {
		problem.Errors = body.located(problem.Errors)
	}
	if outcomeUnknown(err) {
		a.printf(a.err, "Whether the rollout was started is not known. The same command with --idempotency-key %s starts it once.\n", key)
	}
	return started, err
}

func (a *app) printRolloutStarted(name rolloutName, started reply[client.RolloutStarted], output string) error {
	if done, err := a.printObject(output, started.raw); done || err != nil {
		return err
	}
	a.printf(a.out, "rollout %s has begun\n", name)
	a.printf(a.err, "Follow it with: slipway rollout watch %s\n", name.arguments())
	return nil
}
