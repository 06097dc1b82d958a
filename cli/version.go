package cli

import (
	"github.com/spf13/cobra"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/version"
)

func versionCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:   "version",
		Short: "Show which build this is",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := version.This()
			if done, err := a.PrintObject(b); done || err != nil {
				return err
			}
			a.Printf(a.Out, "%s", b)
			return nil
		},
	}
	a.OutputFlag(command)
	return command
}
