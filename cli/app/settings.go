package app

import (
	"github.com/spf13/cobra"

	"slipway.io/slipway/cli/settings"
)

// RegisterSettings adds the flags of the groups' settings, with shell completion.
func RegisterSettings(command *cobra.Command, groups ...settings.Group) {
	settings.Register(command.Flags(), groups...)
	_ = command.MarkFlagFilename(settings.FlagConfig, "yaml", "yml")
	if command.Flags().Lookup("kubeconfig") != nil {
		_ = command.MarkFlagFilename("kubeconfig")
	}
	for _, name := range []string{"kuscia-protocol", "log-level", "log-format"} {
		if command.Flags().Lookup(name) != nil {
			FlagChoices(command, name, settings.Choices(name)...)
		}
	}
}

// LoadSettings reads the settings of a command; what is wrong with them is an error of usage.
func LoadSettings(command *cobra.Command) (settings.Settings, error) {
	values, _, err := settings.Load(command.Flags())
	if err != nil {
		return values, &ExitError{Code: ExitUsage, Err: err}
	}
	return values, nil
}
