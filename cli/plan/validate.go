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
	"slipway.io/slipway/cli/task"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/strictyaml"
)

// ValidateCommand returns `slipway validate`.
func ValidateCommand(a *app.App) *cobra.Command {
	var offline bool
	command := &cobra.Command{
		Use:   "validate FILE",
		Short: "Validate a plan and show its waves",
		Long: `Validate a plan and show its waves. Errors are reported with file and line. FILE contains plans as "slipway
plan apply" accepts them; - reads standard input. Nothing is stored and no cluster is changed.

The engine checks the plan against the catalogue, except for items with other errors. With --offline, or if the engine
does not respond, only the document is checked. The output shows how much was checked. The exit code is 1 if there are
errors; warnings do not change it.`,
		Example: `  slipway validate shop.yaml
  slipway validate --offline - < shop.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return validate(a, c, args[0], offline) },
	}
	app.ClientFlags(command)
	a.OutputFlag(command)
	command.Flags().BoolVar(&offline, "offline", false, "check only the document, without the engine and its catalogue")
	return command
}

type validation struct {
	File string `json:"file"`
	Name string `json:"name,omitempty"`
	// Catalogue is true if the plan was checked against the catalogue, except for items with other errors.
	Catalogue bool `json:"catalogue"`
	// scope describes the extent of the check for users.
	scope string
	names task.Names
	// answered is true if the engine responded.
	answered bool
	client.ValidateResult
}

func validate(a *app.App, c *cobra.Command, file string, offline bool) error {
	documents, findings, err := manifest.ReadDocuments(a, []string{file})
	if err != nil {
		return err
	}
	for _, d := range documents {
		if command, other := map[string]string{manifest.KindService: "service",
			manifest.KindParty: "party"}[d.Kind]; other {
			findings = append(findings, apiclient.Finding{File: d.File,
				Problem: strictyaml.FieldError{Line: manifest.FirstLine(d.Body),
					Reason: fmt.Sprintf("this document is a %s: use `slipway %s apply`", d.Kind, command)}})
		}
	}
	if len(findings) > 0 {
		return manifest.RejectDocuments(a, findings, "nothing was checked")
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
			api = nil // the engine is unreachable: check the other documents offline
		}
		all, valid = append(all, v), valid && v.Valid
	}
	err = a.Print(all, func() { printValidations(a, all) })
	if err == nil && !valid {
		err = &app.ExitError{Code: app.ExitFailure}
	}
	return err
}

// validateDocument lets the engine check the document. Without an engine, or if it does not respond, it checks the
// document locally.
func validateDocument(a *app.App, c *cobra.Command, api *client.Client, d manifest.Document) (validation, error) {
	if api != nil {
		answer, err := apiclient.Read[client.ValidateResult](
			api.ValidatePlanWithBody(c.Context(), apiclient.YAMLBody, bytes.NewReader(d.Body)))
		var unreachable *apiclient.UnreachableError
		if err == nil {
			found := answer.Value
			found.Errors, found.Warnings = manifest.Locate(d.Body, found.Errors),
				manifest.Locate(d.Body, found.Warnings)
			slices.SortStableFunc(found.Errors, func(a, b client.FieldProblem) int {
				return cmp.Compare(a.Line, b.Line)
			})
			scope, some := catalogueScope(d.Body)
			return validation{File: d.File, Name: d.Name, Catalogue: some, scope: scope,
				names: task.ReadNames(c.Context(), api), answered: true, ValidateResult: found}, nil
		}
		if !errors.As(err, &unreachable) {
			return validation{}, err
		}
		a.Printf(a.Err, "warning: %s\n", err)
	}
	return validation{File: d.File, Name: d.Name, scope: "checked without the catalogue; unknown services are not " +
		"detected", ValidateResult: validateOffline(d.Body)}, nil
}

// catalogueScope describes which items the engine could check against the catalogue. some is false if it could check
// none, because every item has errors.
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
		return "catalogue checks were skipped because every item has errors", false
	case len(items) > 0:
		return fmt.Sprintf("checked against the catalogue, except %s with errors", phrase.Count(len(items), "item")),
			true
	}
	return "checked against the catalogue", true
}

// validateOffline checks a document by the engine's rules that need no catalogue. Its lists are not nil, so that JSON
// shows [].
func validateOffline(body []byte) client.ValidateResult {
	document, warnings, wrong := plan.Decode(body)
	result := client.ValidateResult{Valid: len(wrong) == 0, Errors: append([]client.FieldProblem{}, wrong...),
		Warnings: append([]client.FieldProblem{}, warnings...), Waves: []client.Wave{}}
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
			a.Printf(a.Out, "%s", wavesText(v.Waves, v.names))
		}
		for _, f := range apiclient.FindingsOf(v.File, v.Warnings) {
			a.Printf(a.Err, "warning: %s\n", f)
		}
		for _, f := range apiclient.FindingsOf(v.File, v.Errors) {
			a.Printf(a.Err, "error: %s\n", f)
		}
		verdict := "the plan is valid"
		if !v.Valid {
			verdict = "the plan is not valid, " + phrase.Count(len(v.Errors), "error")
		}
		a.Printf(a.Out, "%s: %s (%s)\n", v.File, verdict, v.scope)
	}
}
