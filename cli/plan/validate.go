package plan

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/manifest"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/cli/task"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/strictyaml"
)

// ValidateCommand is `slipway validate`.
func ValidateCommand(a *app.App) *cobra.Command {
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
		RunE: func(c *cobra.Command, args []string) error { return validate(a, c, args[0], offline) },
	}
	app.ClientFlags(command)
	a.OutputFlag(command)
	command.Flags().BoolVar(&offline, "offline", false, "check the document alone, without the engine and its catalogue")
	return command
}

type validation struct {
	File string `json:"file"`
	Name string `json:"name,omitempty"`
	// Catalogue says whether the plan was checked against the catalogue, all of its items that have no errors of their own.
	Catalogue bool `json:"catalogue"`
	// scope says the same to people, and how far.
	scope string
	names task.Names
	// answered says whether the engine was asked and answered.
	answered bool
	client.ValidateResult
}

func validate(a *app.App, c *cobra.Command, file string, offline bool) error {
	documents, findings, err := manifest.ReadDocuments(a, []string{file})
	if err != nil {
		return err
	}
	for _, d := range documents {
		if command, other := map[string]string{manifest.KindService: "service", manifest.KindParty: "party"}[d.Kind]; other {
			findings = append(findings, apiclient.Finding{File: d.File, Wrong: strictyaml.FieldError{Line: manifest.FirstLine(d.Body),
				Reason: fmt.Sprintf("this document is a %s: `slipway %s apply` checks it", d.Kind, command)}})
		}
	}
	if len(findings) > 0 {
		return manifest.RefuseDocuments(a, findings, "nothing was checked")
	}
	var api *client.Client
	if !offline {
		if api, err = app.Connect(c); err != nil {
			return err
		}
	}
	var all []validation
	valid := true
	for _, d := range documents {
		v, err := validateDocument(a, c, api, d)
		if err != nil {
			return err
		}
		if !v.answered {
			api = nil // asked once in vain is enough
		}
		all, valid = append(all, v), valid && v.Valid
	}
	if done, err := a.PrintObject(all); err != nil {
		return err
	} else if !done {
		printValidations(a, all)
	}
	if !valid {
		return &app.ExitError{Code: app.ExitFailure}
	}
	return nil
}

// validateDocument asks the engine; without one, or when it does not answer, the document is checked here.
func validateDocument(a *app.App, c *cobra.Command, api *client.Client, d manifest.Document) (validation, error) {
	if api != nil {
		answer, err := apiclient.Read[client.ValidateResult](api.ValidatePlanWithBody(c.Context(), apiclient.YAMLBody, bytes.NewReader(d.Body)))
		var unreachable *apiclient.UnreachableError
		if err == nil {
			found := answer.Value
			found.Errors, found.Warnings = manifest.Locate(d.Body, found.Errors), manifest.Locate(d.Body, found.Warnings)
			slices.SortStableFunc(found.Errors, func(a, b client.FieldProblem) int { return cmp.Compare(a.Line, b.Line) })
			scope, some := catalogueScope(d.Body)
			return validation{File: d.File, Name: d.Name, Catalogue: some, scope: scope, names: task.ReadNames(c.Context(), api), answered: true,
				ValidateResult: found}, nil
		}
		if !errors.As(err, &unreachable) {
			return validation{}, err
		}
		a.Printf(a.Err, "warning: %s\n", err)
	}
	return validation{File: d.File, Name: d.Name, scope: "checked without the catalogue, so services may be missing from it",
		ValidateResult: validateHere(d.Body)}, nil
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
		whose := "their"
		if len(items) == 1 {
			whose = "its"
		}
		return fmt.Sprintf("checked against the catalogue, but for %s with errors of %s own", render.Count(len(items), "item"), whose), true
	}
	return "checked against the catalogue", true
}

// validateHere checks a document by the engine's own rules, as far as they need no catalogue.
func validateHere(body []byte) client.ValidateResult {
	document, warnings, wrong := plan.Decode(body)
	result := client.ValidateResult{Valid: len(wrong) == 0, Errors: apiclient.ProblemsOf(wrong), Warnings: apiclient.ProblemsOf(warnings),
		Waves: []client.Wave{}}
	if result.Valid {
		result.Waves = wavesOf(document)
	}
	return result
}

func printValidations(a *app.App, all []validation) {
	for n, v := range all {
		if n > 0 {
			a.Printf(a.Out, "\n")
		}
		if len(v.Waves) > 0 {
			a.Printf(a.Out, "%s", tree(v.Waves, v.names))
		}
		for _, f := range apiclient.FindingsOf(v.File, v.Warnings) {
			a.Printf(a.Err, "warning: %s\n", f)
		}
		for _, f := range apiclient.FindingsOf(v.File, v.Errors) {
			a.Printf(a.Err, "error: %s\n", f)
		}
		verdict := "the plan is valid"
		if !v.Valid {
			verdict = "the plan is not valid, " + render.Count(len(v.Errors), "error")
		}
		a.Printf(a.Out, "%s: %s (%s)\n", v.File, verdict, v.scope)
	}
}
