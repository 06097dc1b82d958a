package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/release/plan"
)

func (a *app) validateCommand() *cobra.Command {
	var output string
	var offline bool
	command := &cobra.Command{
		Use:   "validate FILE",
		Short: "Check a plan: its waves, and everything that is wrong with it",
		Long: `Check a plan: its waves, and everything that is wrong with it, each with file and line. FILE holds plans as "slipway plan
apply" takes them, or is - for the standard input. Nothing is stored and no cluster is changed.

The engine is asked, so that the plan is checked against the catalogue as well; an item that has an error of its own is once that is
mended, and the output says so. When the engine does not answer, or with --offline,
the document alone is checked, and the output says so. The exit code is 1 when there are errors; warnings are none.`,
		Example: `  slipway validate shop.yaml
  slipway validate --offline - < shop.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.validate(c, args[0], offline, output) },
	}
	clientFlags(command)
	outputFlag(command, &output)
	command.Flags().BoolVar(&offline, "offline", false, "check the document alone, without the engine and its catalogue")
	return command
}

// validation is what was found in one document.
type validation struct {
	File string `json:"file"`
	Name string `json:"name,omitempty"`
	// Catalogue says whether the plan was checked against the catalogue, all of its items that have no errors of their own.
	Catalogue bool `json:"catalogue"`
	// scope says the same to people, and how far.
	scope string
	// answered says whether the engine was asked and answered.
	answered bool
	client.ValidateResult
}

func (a *app) validate(c *cobra.Command, file string, offline bool, output string) error {
	documents, findings, err := a.readDocuments([]string{file})
	if err != nil {
		return err
	}
	for _, d := range documents {
		if command, other := map[string]string{kindService: "service", kindParty: "party"}[d.kind]; other {
			findings = append(findings, finding{file: d.file, wrong: plan.FieldError{Line: firstLine(d.body),
				Reason: fmt.Sprintf("this document is a %s: `slipway %s apply` checks it", d.kind, command)}})
		}
	}
	if len(findings) > 0 {
		return a.refuseDocuments(findings, "nothing was checked")
	}
	var api *client.Client
	if !offline {
		if api, err = connect(c); err != nil {
			return err
		}
	}
	var all []validation
	valid := true
	for _, d := range documents {
		v, err := a.validateDocument(c, api, d)
		if err != nil {
			return err
		}
		if !v.answered {
			api = nil // asked once in vain is enough
		}
		all, valid = append(all, v), valid && v.Valid
	}
	if done, err := a.printObject(output, all); err != nil {
		return err
	} else if !done {
		a.printValidations(all)
	}
	if !valid {
		return &exitError{code: exitFailure}
	}
	return nil
}

// validateDocument asks the engine; without one, or when it does not answer, the document is checked here.
func (a *app) validateDocument(c *cobra.Command, api *client.Client, d document) (validation, error) {
	if api != nil {
		answer, err := read[client.ValidateResult](api.ValidatePlanWithBody(c.Context(), yamlBody, bytes.NewReader(d.body)))
		var unreachable *unreachableError
		if err == nil {
			found := answer.value
			found.Errors, found.Warnings = locate(d.body, found.Errors), locate(d.body, found.Warnings)
			slices.SortStableFunc(found.Errors, func(a, b client.FieldProblem) int { return cmp.Compare(a.Line, b.Line) })
			scope, some := catalogueScope(d.body)
			return validation{File: d.file, Name: d.name, Catalogue: some, scope: scope, answered: true, ValidateResult: found}, nil
		}
		if !errors.As(err, &unreachable) {
			return validation{}, err
		}
		a.printf(a.err, "warning: %s\n", err)
	}
	return validation{File: d.file, Name: d.name, scope: "checked without the catalogue, so services may be missing from it",
		ValidateResult: validateHere(d.body)}, nil
}

// catalogueScope says how much of a document the engine can have held against the catalogue, and whether that is anything: an item with an
// error of its own says too little.
func catalogueScope(body []byte) (scope string, some bool) {
	document, _, wrong := plan.Decode(body)
	items := map[int]bool{}
	for _, e := range wrong {
		if e.Item > 0 {
			items[e.Item] = true
		}
	}
	switch {
	case len(document.Items) == len(items):
		return "nothing was checked against the catalogue: that takes an item without errors", false
	case len(items) > 0:
		return fmt.Sprintf("checked against the catalogue, but for %s with errors of %s own", count(len(items), "item"), whose(len(items))), true
	}
	return "checked against the catalogue", true
}

func whose(n int) string {
	if n == 1 {
		return "its"
	}
	return "their"
}

// validateHere checks a document by the engine's own rules, as far as they need no catalogue.
func validateHere(body []byte) client.ValidateResult {
	document, warnings, wrong := plan.Decode(body)
	result := client.ValidateResult{Valid: len(wrong) == 0, Errors: []client.FieldProblem{}, Warnings: []client.FieldProblem{}, Waves: []client.Wave{}}
	for _, e := range wrong {
		result.Errors = append(result.Errors, client.FieldProblem{Item: e.Item, Field: e.Field, Line: e.Line, Reason: e.Reason})
	}
	for _, w := range warnings {
		result.Warnings = append(result.Warnings, client.FieldProblem{Item: w.Item, Field: w.Field, Line: w.Line, Reason: w.Reason})
	}
	if result.Valid {
		result.Waves = wavesOf(document)
	}
	return result
}

func (a *app) printValidations(all []validation) {
	for n, v := range all {
		if n > 0 {
			a.printf(a.out, "\n")
		}
		if len(v.Waves) > 0 {
			a.printf(a.out, "%s", planTree(v.Waves))
		}
		for _, f := range findingsOf(v.File, v.Warnings) {
			a.printf(a.err, "warning: %s\n", f)
		}
		for _, f := range findingsOf(v.File, v.Errors) {
			a.printf(a.err, "error: %s\n", f)
		}
		verdict := "the plan is valid"
		if !v.Valid {
			verdict = "the plan is not valid, " + count(len(v.Errors), "error")
		}
		a.printf(a.out, "%s: %s (%s)\n", v.File, verdict, v.scope)
	}
}
