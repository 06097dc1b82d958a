package main

import (
	"context"

	"github.com/spf13/cobra"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/settings"
)

const settingsHelp = `

Every flag can also be given by the environment (SLIPWAY_LISTEN for --listen) or in a YAML file (--config); a flag wins over the
environment, that over the file. "slipway config" shows each value and where it came from.`

// engineCommand completes a command that runs a part of the engine until its context ends.
func engineCommand(command *cobra.Command, group settings.Group, run func(context.Context, settings.Settings) error) *cobra.Command {
	command.Args = cobra.NoArgs
	app.RegisterSettings(command, group)
	command.RunE = func(c *cobra.Command, _ []string) error {
		values, err := app.LoadSettings(c)
		if err != nil {
			return err
		}
		return run(c.Context(), values)
	}
	return command
}
