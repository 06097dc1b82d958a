package main

import (
	"context"

	"github.com/spf13/cobra"

	"slipway.io/slipway/cmd/slipway/settings"
)

const settingsHelp = `

Every flag can also be given by the environment (SLIPWAY_LISTEN for --listen) or in a YAML file (--config); a flag wins over the
environment, that over the file. "slipway config" shows each value and where it came from.`

// engineCommand completes a command that runs a part of the engine until its context ends.
func engineCommand(command *cobra.Command, group settings.Group, run func(context.Context, settings.Settings) error) *cobra.Command {
	command.Args = cobra.NoArgs
	registerSettings(command, group)
	command.RunE = func(c *cobra.Command, _ []string) error {
		values, err := loadSettings(c)
		if err != nil {
			return err
		}
		return run(c.Context(), values)
	}
	return command
}

// registerSettings adds the flags of the groups' settings, with shell completion.
func registerSettings(command *cobra.Command, groups ...settings.Group) {
	settings.Register(command.Flags(), groups...)
	_ = command.MarkFlagFilename(settings.FlagConfig, "yaml", "yml")
	if command.Flags().Lookup("kubeconfig") != nil {
		_ = command.MarkFlagFilename("kubeconfig")
	}
	for _, name := range []string{"kuscia-protocol", "log-level", "log-format"} {
		if command.Flags().Lookup(name) != nil {
			_ = command.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(settings.Choices(name), cobra.ShellCompDirectiveNoFileComp))
		}
	}
}

// loadSettings reads the settings of a command; what is wrong with them is an error of usage.
func loadSettings(command *cobra.Command) (settings.Settings, error) {
	values, _, err := settings.Load(command.Flags())
	if err != nil {
		return values, &exitError{code: exitUsage, err: err}
	}
	return values, nil
}
