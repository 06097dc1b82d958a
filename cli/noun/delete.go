package noun

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
)

// deleted is the outcome of one deletion.
type deleted struct {
	Name    string `json:"name"`
	Deleted bool   `json:"deleted"`
	Error   string `json:"error,omitempty"`
}

// DeleteCommand deletes one object or several; one that cannot be deleted does not keep the others.
func (n *Noun[Item, Object]) DeleteCommand(long string) *cobra.Command {
	command := &cobra.Command{
		Use:               fmt.Sprintf("delete %s...", n.Argument),
		Short:             "Delete " + n.plural(),
		Long:              long,
		Args:              n.arguments(1),
		ValidArgsFunction: n.App.CompleteAll(n.Completion),
	}
	var names []string
	n.App.Writing(command, func(args []string) (err error) {
		names, err = n.names(args)
		return err
	}, func(c *cobra.Command, api *client.Client, _ []string) error { return n.deleteAll(c, api, names) })
	n.flags(command)
	return command
}

// deleteAll deletes one after the other, tells each outcome, and fails when one of them failed.
func (n *Noun[Item, Object]) deleteAll(c *cobra.Command, api *client.Client, names []string) error {
	a := n.App
	var outcomes []deleted
	failed := false
	for _, name := range names {
		err := n.Delete(c.Context(), api, name)
		outcome := deleted{Name: name, Deleted: err == nil}
		if err != nil {
			var problem *apiclient.ProblemError
			var refused *apiclient.KusciaError
			if !errors.As(err, &problem) && !errors.As(err, &refused) {
				return err
			}
			outcome.Error, failed = err.Error(), true
			a.Printf(a.Err, "%s", apiclient.Explain(err, a.MostFindings))
		} else if a.Output == app.Table {
			a.Printf(a.Out, "%s %s deleted\n", n.Name, name)
		}
		outcomes = append(outcomes, outcome)
	}
	if _, err := a.PrintObject(outcomes); err != nil {
		return err
	}
	if failed {
		return &app.ExitError{Code: app.ExitFailure}
	}
	return nil
}
