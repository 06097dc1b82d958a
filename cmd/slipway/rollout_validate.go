package main

import (
	"bytes"
	"slices"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/release/rollout"
)

func (a *app) rolloutValidateCommand() *cobra.Command {
	var request rolloutRequest
	var output string
	command := &cobra.Command{
		Use:   "validate",
		Short: "Check a rollout: its steps, and everything that is wrong with it",
		Long: `Check a rollout as its start would, in the document and in the workload's cluster, and show its steps. It takes what "slipway
rollout start" takes. Nothing is stored and no cluster is changed. The exit code is 1 when there are errors; warnings are none.`,
		Example: `  slipway rollout validate -f canary.yaml --image app=registry/shop/web:2.4`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			body, err := request.read(a, who{}, "")
			if err != nil {
				return err
			}
			api, err := connect(c)
			if err != nil {
				return err
			}
			return a.validateRollout(c, api, body, output)
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	request.flags(command)
	return command
}

func (a *app) validateRollout(c *cobra.Command, api *client.Client, body requestBody, output string) error {
	answer, err := read[client.RolloutValidateResult](api.ValidateRolloutWithBody(c.Context(), jsonBody, bytes.NewReader(body.text)))
	if err != nil {
		return err
	}
	found := answer.value
	found.Errors = body.located(found.Errors)
	if done, err := a.printObject(output, found); err != nil {
		return err
	} else if !done {
		a.printRolloutValidation(body, found)
	}
	if !found.Valid {
		return &exitError{code: exitFailure}
	}
	return nil
}

func (a *app) printRolloutValidation(body requestBody, found client.RolloutValidateResult) {
	for _, w := range found.Warnings {
		a.printf(a.err, "warning: %s\n", oneLine(w))
	}
	a.printf(a.err, "%s", findingLines("error: ", findingsOf(body.file, found.Errors), 0))
	what := "the rollout"
	if s := found.Rollout; s != nil {
		what = "rollout " + keyOf(*s)
		a.printf(a.out, "rollout %s: %s %s, %s\n", keyOf(*s), s.WorkloadRef.Kind, s.WorkloadRef.Name, styleName(s.Style))
		drawing := a.drawing()
		for _, line := range drawing.render(drawing.stepLines(asAsked(*s), len(s.Steps)), unbounded) {
			a.printf(a.out, "%s\n", line)
		}
	}
	if found.Valid {
		a.printf(a.out, "%s can be started\n", what)
		return
	}
	a.printf(a.out, "%s cannot be started, %s\n", what, count(len(found.Errors), "error"))
}

// asAsked is a rollout that has not begun: its steps say what is asked, not how far they are.
func asAsked(s rollout.Status) rollout.Status {
	s.CurrentStepIndex, s.Steps = 0, slices.Clone(s.Steps)
	for n := range s.Steps {
		s.Steps[n].State, s.Steps[n].StartedAt, s.Steps[n].FinishedAt = "", nil, nil
	}
	return s
}
