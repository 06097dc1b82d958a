package manifest

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/release/strictyaml"
)

// Application says how documents of one kind are applied.
type Application struct {
	Noun, Kind string
	// NameFlag is how a person names a document that is a spec alone.
	NameFlag string
	// ValidName says what is wrong with a name.
	ValidName func(name string) error
	// Check reads the document strictly, before anything is sent.
	Check func(body []byte) strictyaml.Errors
	// Put sends one document.
	Put func(c *cobra.Command, api *client.Client, d Document) (Applied, error)
}

// Applied is what became of one document.
type Applied struct {
	Name string `json:"name"`
	// Outcome is created, replaced, unchanged or refused.
	Outcome string `json:"outcome"`
	Error   string `json:"error,omitempty"`
	// Errors are all that the API finds wrong with a document that it refuses.
	Errors   []client.FieldProblem `json:"errors,omitempty"`
	Warnings []client.FieldProblem `json:"warnings,omitempty"`
}

// OutcomeOf names what the API did.
func OutcomeOf(status int, changed bool) string {
	switch {
	case status == 201:
		return "created"
	case changed:
		return "replaced"
	}
	return "unchanged"
}

// Apply checks every document of the files first, and sends them one by one only when all are sound.
func Apply(a *app.App, c *cobra.Command, what Application, files []string, name, output string) error {
	documents, findings, err := ReadDocuments(a, files)
	if err != nil {
		return err
	}
	if name != "" && len(documents) > 1 {
		return app.Usagef("%s names one %s, and there are %d documents: write whole objects with metadata.name", what.NameFlag, what.Noun, len(documents))
	}
	if name != "" && len(documents) == 1 {
		if own := documents[0].Name; documents[0].Kind != "" && own != name {
			return app.Usagef("the %s in %s calls itself %s, %s says %s: leave one of them out", what.Noun, documents[0].File, own, what.NameFlag, name)
		}
		documents[0].Name = name
	}
	if len(findings) == 0 {
		findings = checkNames(documents, what)
		for _, d := range documents {
			if d.Kind != "" && d.Kind != what.Kind {
				continue
			}
			for _, wrong := range what.Check(d.Body) {
				findings = append(findings, apiclient.Finding{File: d.File, Wrong: wrong})
			}
		}
	}
	if len(findings) > 0 {
		return RefuseDocuments(a, findings, "nothing was sent")
	}
	api, err := a.ConnectToWrite(c)
	if err != nil {
		return err
	}
	return SendAll(a, c, api, what, documents, output)
}

// RefuseDocuments prints all that is wrong, one finding on a line.
func RefuseDocuments(a *app.App, findings []apiclient.Finding, consequence string) error {
	for _, f := range findings {
		a.Printf(a.Err, "%s\n", f)
	}
	things := "1 error"
	if len(findings) > 1 {
		things = fmt.Sprintf("%d errors", len(findings))
	}
	a.Printf(a.Err, "error: %s; %s\n", things, consequence)
	return &app.ExitError{Code: app.ExitFailure}
}

// SendAll sends the documents. One that the API refuses does not keep the others.
func SendAll(a *app.App, c *cobra.Command, api *client.Client, what Application, documents []Document, output string) error {
	var results []Applied
	refused := 0
	for _, d := range documents {
		result, err := what.Put(c, api, d)
		var problem *apiclient.ProblemError
		if errors.As(err, &problem) {
			refused++
			result = Applied{Outcome: "refused", Error: problem.Error(), Errors: Locate(d.Body, problem.Errors)}
			a.Printf(a.Err, "error: %s %s: %s\n", what.Noun, d.Name, problem)
			a.Printf(a.Err, "%s", apiclient.FindingLines("  ", apiclient.FindingsOf(d.File, result.Errors), a.MostFindings))
		} else if err != nil {
			return fmt.Errorf("%s %s: %w", what.Noun, d.Name, err)
		} else if output == app.Table {
			a.Printf(a.Out, "%s %s %s\n", what.Noun, d.Name, result.Outcome)
		}
		result.Name = d.Name
		results = append(results, result)
		a.Printf(a.Err, "%s", apiclient.FindingLines("warning: ", apiclient.FindingsOf(d.File, Locate(d.Body, result.Warnings)), a.MostFindings))
	}
	if _, err := a.PrintObject(output, results); err != nil {
		return err
	}
	if refused > 0 {
		return &app.ExitError{Code: app.ExitFailure}
	}
	return nil
}

// FileFlag adds -f.
func FileFlag(command *cobra.Command, files *[]string) {
	command.Flags().StringArrayVarP(files, "file", "f", nil, "`file` to apply, - for the standard input; may be repeated")
	_ = command.MarkFlagRequired("file")
	_ = command.MarkFlagFilename("file", "yaml", "yml", "json")
}
