package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
)

// deletion says what a delete command deletes.
type deletion struct {
	noun, argument, long string
	complete             lister
	call                 func(c *cobra.Command, api *client.Client, name string) error
}

// deleted is the outcome of one deletion.
type deleted struct {
	Name    string `json:"name"`
	Deleted bool   `json:"deleted"`
	Error   string `json:"error,omitempty"`
}

// deleteCommand deletes one thing or several; one that cannot be deleted does not keep the others.
func (a *app) deleteCommand(d deletion) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:               fmt.Sprintf("delete %s...", d.argument),
		Short:             fmt.Sprintf("Delete %ss", d.noun),
		Long:              d.long,
		Args:              someNames("a "+d.noun, d.argument),
		ValidArgsFunction: a.completeAll(d.complete),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := a.connectToWrite(c)
			if err != nil {
				return err
			}
			return a.deleteAll(c, api, d, args, output)
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	return command
}

func (a *app) deleteAll(c *cobra.Command, api *client.Client, d deletion, names []string, output string) error {
	var outcomes []deleted
	failed := false
	for _, name := range names {
		err := d.call(c, api, name)
		outcome := deleted{Name: name, Deleted: err == nil}
		if err != nil {
			var problem *problemError
			var refused *kusciaError
			if !errors.As(err, &problem) && !errors.As(err, &refused) {
				return err
			}
			outcome.Error, failed = err.Error(), true
			a.printf(a.err, "%s", explain(err, a.mostFindings))
		} else if output == outputTable {
			a.printf(a.out, "%s %s deleted\n", d.noun, name)
		}
		outcomes = append(outcomes, outcome)
	}
	if _, err := a.printObject(output, outcomes); err != nil {
		return err
	}
	if failed {
		return &exitError{code: exitFailure}
	}
	return nil
}
