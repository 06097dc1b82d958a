package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/release/strictyaml"
)

// application says how documents of one kind are applied.
type application struct {
	noun, kind string
	// nameFlag is how a person names a document that is a spec alone.
	nameFlag string
	// validName says what is wrong with a name.
	validName func(name string) error
	// check reads the document strictly, before anything is sent.
	check func(body []byte) strictyaml.Errors
	// put sends one document.
	put func(c *cobra.Command, api *client.Client, d document) (applied, error)
}

// applied is what became of one document.
type applied struct {
	Name string `json:"name"`
	// Outcome is created, replaced, unchanged or refused.
	Outcome string `json:"outcome"`
	Error   string `json:"error,omitempty"`
	// Errors are all that the API finds wrong with a document that it refuses.
	Errors   []client.FieldProblem `json:"errors,omitempty"`
	Warnings []client.FieldProblem `json:"warnings,omitempty"`
}

// outcomeOf names what the API did.
func outcomeOf(status int, changed bool) string {
	switch {
	case status == 201:
		return "created"
	case changed:
		return "replaced"
	}
	return "unchanged"
}

// apply checks every document of the files first, and sends them one by one only when all are sound.
func (a *app) apply(c *cobra.Command, what application, files []string, name, output string) error {
	documents, findings, err := a.readDocuments(files)
	if err != nil {
		return err
	}
	if name != "" && len(documents) > 1 {
		return usagef("%s names one %s, and there are %d documents: write whole objects with metadata.name", what.nameFlag, what.noun, len(documents))
	}
	if name != "" && len(documents) == 1 {
		if own := documents[0].name; documents[0].kind != "" && own != name {
			return usagef("the %s in %s calls itself %s, %s says %s: leave one of them out", what.noun, documents[0].file, own, what.nameFlag, name)
		}
		documents[0].name = name
	}
	if len(findings) == 0 {
		findings = checkNames(documents, what)
		for _, d := range documents {
			if d.kind != "" && d.kind != what.kind {
				continue
			}
			for _, wrong := range what.check(d.body) {
				findings = append(findings, finding{file: d.file, wrong: wrong})
			}
		}
	}
	if len(findings) > 0 {
		return a.refuseDocuments(findings, "nothing was sent")
	}
	api, err := a.connectToWrite(c)
	if err != nil {
		return err
	}
	return a.sendAll(c, api, what, documents, output)
}

// refuseDocuments prints all that is wrong, one finding on a line.
func (a *app) refuseDocuments(findings []finding, consequence string) error {
	for _, f := range findings {
		a.printf(a.err, "%s\n", f)
	}
	things := "1 error"
	if len(findings) > 1 {
		things = fmt.Sprintf("%d errors", len(findings))
	}
	a.printf(a.err, "error: %s; %s\n", things, consequence)
	return &exitError{code: exitFailure}
}

// sendAll sends the documents. One that the API refuses does not keep the others.
func (a *app) sendAll(c *cobra.Command, api *client.Client, what application, documents []document, output string) error {
	var results []applied
	refused := 0
	for _, d := range documents {
		result, err := what.put(c, api, d)
		var problem *problemError
		if errors.As(err, &problem) {
			refused++
			result = applied{Outcome: "refused", Error: problem.Error(), Errors: locate(d.body, problem.Errors)}
			a.printf(a.err, "error: %s %s: %s\n", what.noun, d.name, problem)
			a.printf(a.err, "%s", findingLines("  ", findingsOf(d.file, result.Errors), a.mostFindings))
		} else if err != nil {
			return fmt.Errorf("%s %s: %w", what.noun, d.name, err)
		} else if output == outputTable {
			a.printf(a.out, "%s %s %s\n", what.noun, d.name, result.Outcome)
		}
		result.Name = d.name
		results = append(results, result)
		a.printf(a.err, "%s", findingLines("warning: ", findingsOf(d.file, locate(d.body, result.Warnings)), a.mostFindings))
	}
	if _, err := a.printObject(output, results); err != nil {
		return err
	}
	if refused > 0 {
		return &exitError{code: exitFailure}
	}
	return nil
}

// fileFlag adds -f.
func fileFlag(command *cobra.Command, files *[]string) {
	command.Flags().StringArrayVarP(files, "file", "f", nil, "`file` to apply, - for the standard input; may be repeated")
	_ = command.MarkFlagRequired("file")
	_ = command.MarkFlagFilename("file", "yaml", "yml", "json")
}
