package manifest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/strictyaml"
)

// Applier defines how documents of one kind are applied.
type Applier struct {
	Noun, Kind string
	// NameFlag is the argument that names a document without metadata; "" if documents always contain a name.
	NameFlag string
	// ValidName returns an error for an invalid name.
	ValidName func(name string) error
	// Check validates a document strictly before anything is sent.
	Check func(body []byte) strictyaml.Errors
	// Read reads documents of foreign kinds; it replaces ValidName and Check.
	Read func(files []string, name string) ([]Document, error)
	// Put sends one document.
	Put func(ctx context.Context, api *client.Client, d Document) (Result, error)
	// InOrder stops at the first refused document, because later ones refer to earlier ones.
	InOrder bool
	// Watched prints the outcomes to standard error, because the command watches the object afterwards.
	Watched bool
}

// Result is the outcome for one document.
type Result struct {
	Name string `json:"name"`
	// Outcome is created, replaced, updated, unchanged or refused.
	Outcome string `json:"outcome"`
	Error   string `json:"error,omitempty"`
	// Errors are all errors in a document that the API rejected.
	Errors   []client.FieldProblem `json:"errors,omitempty"`
	Warnings []client.FieldProblem `json:"warnings,omitempty"`
}

// ReadResult reads the API's response to an applied document.
func ReadResult(response *http.Response, err error) (Result, error) {
	answer, err := apiclient.Read[struct {
		Created  bool              `json:"created"`
		Changed  bool              `json:"changed"`
		Warnings []json.RawMessage `json:"warnings"`
	}](response, err)
	result := Result{Outcome: "unchanged"}
	switch {
	case answer.Status == http.StatusCreated || answer.Value.Created:
		result.Outcome = "created"
	case answer.Value.Changed:
		result.Outcome = "replaced"
	}
	for _, text := range answer.Value.Warnings {
		var warning client.FieldProblem // some warnings have a field, others are a sentence
		if json.Unmarshal(text, &warning) != nil && json.Unmarshal(text, &warning.Reason) != nil {
			return result, fmt.Errorf("cannot decode the API's warning %s", text)
		}
		result.Warnings = append(result.Warnings, warning)
	}
	return result, err
}

// Documents reads the documents of the files. If any is invalid, it prints all errors and returns an error.
func (what Applier) Documents(a *app.App, files []string, name string) ([]Document, error) {
	if what.Read != nil {
		return what.Read(files, name)
	}
	documents, findings, err := ReadDocuments(a, files)
	if err != nil {
		return nil, err
	}
	if name != "" && len(documents) > 1 {
		return nil, app.Usagef("%s names one %s, but there are %d documents: use objects with metadata.name",
			what.NameFlag, what.Noun, len(documents))
	}
	if name != "" && len(documents) == 1 {
		if own := documents[0].Name; documents[0].Kind != "" && own != name {
			return nil, app.Usagef("the %s in %s has the name %s, but %s is %s: use only one of them", what.Noun,
				documents[0].File, own, what.NameFlag, name)
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
				findings = append(findings, apiclient.Finding{File: d.File, Problem: wrong})
			}
		}
	}
	if len(findings) > 0 {
		return nil, RejectDocuments(a, findings, "nothing was sent")
	}
	return documents, nil
}

// RejectDocuments prints all findings, one per line.
func RejectDocuments(a *app.App, findings []apiclient.Finding, consequence string) error {
	for _, f := range findings {
		a.Printf(a.Err, "%s\n", f)
	}
	a.Printf(a.Err, "error: %s; %s\n", phrase.Count(len(findings), "error"), consequence)
	return &app.ExitError{Code: app.ExitFailure}
}

// Send sends the documents. If the API rejects one, the others are still sent. Any other error ends it, after the
// results until then are printed.
func (what Applier) Send(ctx context.Context, a *app.App, api *client.Client, documents []Document) error {
	var results []Result
	var failed error
	refused := 0
	out := a.Out
	if what.Watched {
		out = a.Err
	}
	for _, d := range documents {
		noun := what.Noun
		if d.Kind == KindAppImage { // a file with servings can contain them too
			noun = d.Kind
		}
		result, err := what.Put(ctx, api, d)
		var problem *apiclient.ProblemError
		if errors.As(err, &problem) {
			refused++
			result = Result{Outcome: "refused", Error: problem.Error(), Errors: Locate(d.Body, problem.Errors)}
			problem.Findings = apiclient.FindingsOf(d.File, result.Errors)
			a.Printf(a.Err, "%s", apiclient.Explain(fmt.Errorf("%s %s: %w", noun, d.Name, err), a.MaxFindings))
		} else if err != nil {
			failed = fmt.Errorf("%s %s: %w", noun, d.Name, err)
			break
		} else if a.Output == app.Table {
			a.Printf(out, "%s %s %s\n", noun, d.Name, result.Outcome)
		}
		result.Name = d.Name
		results = append(results, result)
		a.Printf(a.Err, "%s", apiclient.FindingLines("warning: ",
			apiclient.FindingsOf(d.File, Locate(d.Body, result.Warnings)), a.MaxFindings))
		if what.InOrder && refused > 0 {
			break
		}
	}
	if what.Watched && refused == 0 && failed == nil {
		return nil
	}
	if refused > 0 {
		failed = cmp.Or[error](failed, &app.ExitError{Code: app.ExitFailure})
	}
	if len(results) == 0 {
		return failed
	}
	_, err := a.PrintObject(results)
	return cmp.Or(err, failed)
}

// FileFlag adds -f.
func FileFlag(command *cobra.Command, files *[]string) {
	command.Flags().StringArrayVarP(files, "file", "f", nil,
		"`file` to apply, or - for standard input; can be repeated")
	_ = command.MarkFlagRequired("file")
	_ = command.MarkFlagFilename("file", "yaml", "yml", "json")
}
