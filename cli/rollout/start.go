package rollout

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/rollout"
)

func startCommand(a *app.App) *cobra.Command {
	var request startRequest
	var body requestBody
	var who app.Who
	var options follow.Options
	command := &cobra.Command{
		Use:   "start",
		Short: "Start a canary or blue-green release of a workload",
		Long: `Start a canary or blue-green release of a workload. -f takes the request as the HTTP API does, or a whole Rollout
document (rollouts.kruise.io/v1beta1 or v1alpha1); flags complete it, or say everything. Everything is checked first, in the
document and in the workload's cluster; what cannot be done is refused with every reason, and nothing is changed.

With --watch the rollout is followed to its end, and the exit code says how it ended:

` + exitCodes + `

--key makes a repeat safe: for 30 days the same key is the same rollout.`,
		Example: `  slipway rollout start -f canary.yaml --image app=registry/shop/web:2.4 --reason "release 2.4" --watch
  slipway rollout start -n shop --workload deployment/web --image app=registry/shop/web:2.4 --strategy-file strategy.yaml`,
		Args: cobra.NoArgs,
	}
	check := func([]string) (err error) {
		if err := options.Check(command); err != nil {
			return err
		}
		body, err = request.read(a, who)
		return err
	}
	a.Writing(command, check, func(c *cobra.Command, api *client.Client, _ []string) error {
		who.Complete()
		started, err := startOne(c.Context(), a, api, body, who.Key)
		if err != nil {
			return err
		}
		name := app.Name{Party: started.Value.Party, Namespace: started.Value.Namespace, Name: started.Value.Name}
		for _, w := range started.Value.Warnings {
			a.Printf(a.Err, "warning: %s\n", render.OneLine(w))
		}
		if options.Watch {
			if a.Output == app.Table {
				a.Printf(a.Err, "rollout %s\n", name)
			}
			return watchOne(c.Context(), a, api, name, options)
		}
		if done, err := a.PrintObject(started.Raw); done || err != nil {
			return err
		}
		a.Printf(a.Out, "rollout %s has begun\n", name)
		a.Printf(a.Err, "Follow it with: slipway rollout watch %s\n", name.Arguments())
		return nil
	})
	request.flags(command)
	who.Flags(command, "any `text` that is unique to this release, such as a pipeline's number")
	options.StartFlags(command, words)
	return command
}

// startOne starts it. When nobody can say whether it was started, the error says how to ask again without starting another.
func startOne(ctx context.Context, a *app.App, api *client.Client, body requestBody,
	key string) (apiclient.Reply[client.RolloutStarted], error) {
	started, err := apiclient.Read[client.RolloutStarted](api.StartRolloutWithBody(ctx,
		&client.StartRolloutParams{IdempotencyKey: &key}, apiclient.JSONBody, bytes.NewReader(body.text)))
	var problem *apiclient.ProblemError
	if errors.As(err, &problem) {
		problem.Findings = body.located(problem.Errors)
	}
	if apiclient.OutcomeUnknown(err) {
		a.Printf(a.Err, "Whether the rollout was started is not known. The same command with --key %s starts it once.\n", key)
	}
	return started, err
}

func validateCommand(a *app.App) *cobra.Command {
	var request startRequest
	var body requestBody
	command := &cobra.Command{
		Use:   "validate",
		Short: "Check a rollout: its steps, and everything that is wrong with it",
		Long: `Check a rollout as its start would, in the document and in the workload's cluster, and show its steps. It takes what "slipway
rollout start" takes. Nothing is stored and no cluster is changed. The exit code is 1 when there are errors; warnings are none.`,
		Example: `  slipway rollout validate -f canary.yaml --image app=registry/shop/web:2.4`,
		Args:    cobra.NoArgs,
	}
	check := func([]string) (err error) {
		body, err = request.read(a, app.Who{})
		return err
	}
	a.Reading(command, check, func(c *cobra.Command, api *client.Client, _ []string) error {
		return validate(c.Context(), a, api, body)
	})
	request.flags(command)
	return command
}

func validate(ctx context.Context, a *app.App, api *client.Client, body requestBody) error {
	answer, err := apiclient.Read[client.RolloutValidateResult](api.ValidateRolloutWithBody(ctx, apiclient.JSONBody,
		bytes.NewReader(body.text)))
	if err != nil {
		return err
	}
	found := answer.Value
	findings := body.located(found.Errors)
	if done, err := a.PrintObject(found); err != nil {
		return err
	} else if !done {
		printValidation(a, findings, found)
	}
	if !found.Valid {
		return &app.ExitError{Code: app.ExitFailure}
	}
	return nil
}

func printValidation(a *app.App, findings []apiclient.Finding, found client.RolloutValidateResult) {
	for _, w := range found.Warnings {
		a.Printf(a.Err, "warning: %s\n", render.OneLine(w))
	}
	a.Printf(a.Err, "%s", apiclient.FindingLines("error: ", findings, 0))
	what := "the rollout"
	if s := found.Rollout; s != nil {
		what = "rollout " + keyOf(*s)
		a.Printf(a.Out, "%s\n", titleOf(*s))
		a.Draw(a.Drawing().Render(stepLines(a.Drawing(), asAsked(*s), len(s.Steps)), render.Unbounded))
	}
	if found.Valid {
		a.Printf(a.Out, "%s can be started\n", what)
		return
	}
	a.Printf(a.Out, "%s cannot be started, %s\n", what, render.Count(len(found.Errors), "error"))
}

// asAsked is a rollout that has not begun: its steps say what is asked, not how far they are.
func asAsked(s rollout.Status) rollout.Status {
	s.CurrentStepIndex, s.Steps = 0, slices.Clone(s.Steps)
	for n := range s.Steps {
		s.Steps[n].State, s.Steps[n].StartedAt, s.Steps[n].FinishedAt = "", nil, nil
	}
	return s
}
