package rollout

import (
	"bytes"
	"errors"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
)

func startCommand(a *app.App) *cobra.Command {
	var request startRequest
	var person app.Who
	var key, output string
	var watch bool
	var options watchOptions
	command := &cobra.Command{
		Use:   "start",
		Short: "Start a canary or blue-green release of a workload",
		Long: `Start a canary or blue-green release of a workload. -f takes the request as "POST /api/v1/rollouts" does, or a whole Rollout
document (rollouts.kruise.io/v1beta1 or v1alpha1); flags complete it, or say everything. Everything is checked first, in the
document and in the workload's cluster; what cannot be done is refused with every reason, and nothing is changed.

With --watch the rollout is followed to its end, and the exit code says how it ended:

` + exitCodes + `

--key makes a repeat safe: for 30 days the same key is the same rollout.`,
		Example: `  slipway rollout start -f canary.yaml --image app=registry/shop/web:2.4 --reason "release 2.4" --watch
  slipway rollout start -n shop --workload deployment/web --image app=registry/shop/web:2.4 --strategy-file strategy.yaml`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if given := options.given(c); !watch && given != "" {
				return app.Usagef("--%s means nothing without --watch", given)
			}
			key = app.KeyOrRandom(key)
			body, err := request.read(a, person, "")
			if err != nil {
				return err
			}
			api, err := a.ConnectToWrite(c)
			if err != nil {
				return err
			}
			started, err := startOne(a, c, api, body, key)
			if err != nil {
				return err
			}
			name := app.Name{Party: started.Value.Party, Namespace: started.Value.Namespace, Name: started.Value.Name}
			for _, w := range started.Value.Warnings {
				a.Printf(a.Err, "warning: %s\n", render.OneLine(w))
			}
			if !watch {
				return printStarted(a, name, started, output)
			}
			if output == app.Table {
				a.Printf(a.Err, "rollout %s\n", name)
			}
			return watchOne(c.Context(), a, api, name, options, output)
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	request.flags(command)
	person.Flags(command)
	command.Flags().StringVar(&key, "key", "", "any `text` that is unique to this release, such as a pipeline's number (default: a random one)")
	command.Flags().BoolVarP(&watch, "watch", "w", false, "follow the rollout to its end")
	options.flags(command)
	return command
}

// startOne starts it. When nobody can say whether it was started, the error says how to ask again without starting another.
func startOne(a *app.App, c *cobra.Command, api *client.Client, body requestBody, key string) (apiclient.Reply[client.RolloutStarted], error) {
	started, err := apiclient.Read[client.RolloutStarted](api.StartRolloutWithBody(c.Context(),
		&client.StartRolloutParams{IdempotencyKey: &key, SlipwayVia: app.Via()}, apiclient.JSONBody, bytes.NewReader(body.text)))
	var problem *apiclient.ProblemError
	if errors.As(err, &problem) {
		problem.Findings = body.located(problem.Errors)
	}
	if apiclient.OutcomeUnknown(err) {
		a.Printf(a.Err, "Whether the rollout was started is not known. The same command with --key %s starts it once.\n", key)
	}
	return started, err
}

func printStarted(a *app.App, name app.Name, started apiclient.Reply[client.RolloutStarted], output string) error {
	if done, err := a.PrintObject(output, started.Raw); done || err != nil {
		return err
	}
	a.Printf(a.Out, "rollout %s has begun\n", name)
	a.Printf(a.Err, "Follow it with: slipway rollout watch %s\n", name.Arguments())
	return nil
}
