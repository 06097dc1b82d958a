package rollout

import (
	"bytes"
	"slices"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/rollout"
)

func validateCommand(a *app.App) *cobra.Command {
	var request startRequest
	var output string
	command := &cobra.Command{
		Use:   "validate",
		Short: "Check a rollout: its steps, and everything that is wrong with it",
		Long: `Check a rollout as its start would, in the document and in the workload's cluster, and show its steps. It takes what "slipway
rollout start" takes. Nothing is stored and no cluster is changed. The exit code is 1 when there are errors; warnings are none.`,
		Example: `  slipway rollout validate -f canary.yaml --image app=registry/shop/web:2.4`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			body, err := request.read(a, app.Who{}, "")
			if err != nil {
				return err
			}
			api, err := app.Connect(c)
			if err != nil {
				return err
			}
			return validate(a, c, api, body, output)
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	request.flags(command)
	return command
}

func validate(a *app.App, c *cobra.Command, api *client.Client, body requestBody, output string) error {
	answer, err := apiclient.Read[client.RolloutValidateResult](api.ValidateRolloutWithBody(c.Context(), apiclient.JSONBody, bytes.NewReader(body.text)))
	if err != nil {
		return err
	}
	found := answer.Value
	findings := body.located(found.Errors)
	if done, err := a.PrintObject(output, found); err != nil {
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
		a.Printf(a.Out, "rollout %s: %s %s, %s\n", keyOf(*s), s.WorkloadRef.Kind, s.WorkloadRef.Name, string(s.Style))
		drawing := a.Drawing()
		for _, line := range drawing.Render(stepLines(drawing, asAsked(*s), len(s.Steps)), render.Unbounded) {
			a.Printf(a.Out, "%s\n", line)
		}
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
