package app

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
)

// Deletion says what a delete command deletes.
type Deletion struct {
	Noun, Argument, Long string
	Complete             Lister
	Call                 func(c *cobra.Command, api *client.Client, name string) error
}

// deleted is the outcome of one deletion.
type deleted struct {
	Name    string `json:"name"`
	Deleted bool   `json:"deleted"`
	Error   string `json:"error,omitempty"`
}

// DeleteCommand deletes one thing or several; one that cannot be deleted does not keep the others.
func (a *App) DeleteCommand(d Deletion) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:               fmt.Sprintf("delete %s...", d.Argument),
		Short:             fmt.Sprintf("Delete %ss", d.Noun),
		Long:              d.Long,
		Args:              SomeNames("a "+d.Noun, d.Argument),
		ValidArgsFunction: a.CompleteAll(d.Complete),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := a.ConnectToWrite(c)
			if err != nil {
				return err
			}
			return a.DeleteAll(c, api, d, args, output)
		},
	}
	ClientFlags(command)
	OutputFlag(command, &output)
	return command
}

// DeleteAll deletes one after the other, tells each outcome, and fails when one of them failed.
func (a *App) DeleteAll(c *cobra.Command, api *client.Client, d Deletion, names []string, output string) error {
	var outcomes []deleted
	failed := false
	for _, name := range names {
		err := d.Call(c, api, name)
		outcome := deleted{Name: name, Deleted: err == nil}
		if err != nil {
			var problem *apiclient.ProblemError
			var refused *apiclient.KusciaError
			if !errors.As(err, &problem) && !errors.As(err, &refused) {
				return err
			}
			outcome.Error, failed = err.Error(), true
			a.Printf(a.Err, "%s", apiclient.Explain(err, a.MostFindings))
		} else if output == Table {
			a.Printf(a.Out, "%s %s deleted\n", d.Noun, name)
		}
		outcomes = append(outcomes, outcome)
	}
	if _, err := a.PrintObject(output, outcomes); err != nil {
		return err
	}
	if failed {
		return &ExitError{Code: ExitFailure}
	}
	return nil
}
