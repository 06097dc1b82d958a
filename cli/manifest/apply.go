package manifest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/strictyaml"
)

// Application says how documents of one kind are applied.
type Application struct {
	Noun, Kind string
	// NameFlag is how a person names a document that is a spec alone; "" where a document always says its name.
	NameFlag string
	// ValidName says what is wrong with a name.
	ValidName func(name string) error
	// Check reads the document strictly, before anything is sent.
	Check func(body []byte) strictyaml.Errors
	// Read reads the documents of a kind that is not Slipway's own, in place of ValidName and Check.
	Read func(files []string, name string) ([]Document, error)
	// Put sends one document.
	Put func(ctx context.Context, api *client.Client, d Document) (Applied, error)
}

// Applied is what became of one document.
type Applied struct {
	Name string `json:"name"`
	// Outcome is created, replaced, updated, unchanged or refused.
	Outcome string `json:"outcome"`
	Error   string `json:"error,omitempty"`
	// Errors are all that the API finds wrong with a document that it refuses.
	Errors   []client.FieldProblem `json:"errors,omitempty"`
	Warnings []client.FieldProblem `json:"warnings,omitempty"`
}

// Answered reads what the API answers to a document.
func Answered(response *http.Response, err error) (Applied, error) {
	answer, err := apiclient.Read[struct {
		Changed  bool              `json:"changed"`
		Warnings []json.RawMessage `json:"warnings"`
	}](response, err)
	result := Applied{Outcome: "unchanged"}
	switch {
	case answer.Status == http.StatusCreated:
		result.Outcome = "created"
	case answer.Value.Changed:
		result.Outcome = "replaced"
	}
	for _, text := range answer.Value.Warnings {
		var warning client.FieldProblem // some warnings have a field, others are a sentence
		if json.Unmarshal(text, &warning) != nil && json.Unmarshal(text, &warning.Reason) != nil {
			return result, fmt.Errorf("the API's warning %s cannot be read", text)
		}
		result.Warnings = append(result.Warnings, warning)
	}
	return result, err
}

// Documents are the documents of the files, all of them sound; what is wrong with them is printed.
func (what Application) Documents(a *app.App, files []string, name string) ([]Document, error) {
	if what.Read != nil {
		return what.Read(files, name)
	}
	documents, findings, err := ReadDocuments(a, files)
	if err != nil {
		return nil, err
	}
	if name != "" && len(documents) > 1 {
		return nil, app.Usagef("%s names one %s, and there are %d documents: write whole objects with metadata.name",
			what.NameFlag, what.Noun, len(documents))
	}
	if name != "" && len(documents) == 1 {
		if own := documents[0].Name; documents[0].Kind != "" && own != name {
			return nil, app.Usagef("the %s in %s calls itself %s, %s says %s: leave one of them out", what.Noun, documents[0].File, own,
				what.NameFlag, name)
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
		return nil, RefuseDocuments(a, findings, "nothing was sent")
	}
	return documents, nil
}

// RefuseDocuments prints all that is wrong, one finding on a line.
func RefuseDocuments(a *app.App, findings []apiclient.Finding, consequence string) error {
	for _, f := range findings {
		a.Printf(a.Err, "%s\n", f)
	}
	a.Printf(a.Err, "error: %s; %s\n", render.Count(len(findings), "error"), consequence)
	return &app.ExitError{Code: app.ExitFailure}
}

// Send sends the documents. One that the API refuses does not keep the others.
func (what Application) Send(ctx context.Context, a *app.App, api *client.Client, documents []Document) error {
	var results []Applied
	refused := 0
	for _, d := range documents {
		result, err := what.Put(ctx, api, d)
		var problem *apiclient.ProblemError
		if errors.As(err, &problem) {
			refused++
			result = Applied{Outcome: "refused", Error: problem.Error(), Errors: Locate(d.Body, problem.Errors)}
			a.Printf(a.Err, "error: %s %s: %s\n", what.Noun, d.Name, problem)
			a.Printf(a.Err, "%s", apiclient.FindingLines("  ", apiclient.FindingsOf(d.File, result.Errors), a.MostFindings))
		} else if err != nil {
			return fmt.Errorf("%s %s: %w", what.Noun, d.Name, err)
		} else if a.Output == app.Table {
			a.Printf(a.Out, "%s %s %s\n", what.Noun, d.Name, result.Outcome)
		}
		result.Name = d.Name
		results = append(results, result)
		a.Printf(a.Err, "%s", apiclient.FindingLines("warning: ", apiclient.FindingsOf(d.File, Locate(d.Body, result.Warnings)), a.MostFindings))
	}
	if _, err := a.PrintObject(results); err != nil {
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
