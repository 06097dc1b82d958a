package main

import (
	"github.com/spf13/cobra"

	"slipway.io/slipway/activities/traffic/scriptbox"
	"slipway.io/slipway/cli/app"
)

// scriptCommand is the process in which a worker runs one Lua script of a traffic provider. It is no command for people.
func scriptCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: scriptbox.Argument, Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if code := scriptbox.Child(a.In, a.Out); code != 0 {
				return &app.ExitError{Code: code}
			}
			return nil
		},
	}
}
