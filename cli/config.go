package cli

import (
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/cli/version"
	"slipway.io/slipway/release/strictyaml"
)

func configCommand(a *app.App) *cobra.Command {
	var forCommand string
	command := &cobra.Command{
		Use:   "config",
		Short: "Show each setting, its value and where it came from",
		Long: `Show each setting, its value and where it came from: a flag, the environment, the configuration file or the
default. The command accepts the flags of all commands, so that you can check a command line without running it.
Invalid settings are reported below the table, with exit code 2.`,
		Example: `  slipway config --for worker --config slipway.yaml
  SLIPWAY_LISTEN=0.0.0.0:80 slipway config --for server -o json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return showConfig(a, c, forCommand) },
	}
	app.RegisterSettings(command, settings.Groups...)
	command.Flags().StringVar(&forCommand, "for", "",
		"show only the settings of this `command`, with its defaults: "+strictyaml.List(settings.Groups))
	app.FlagChoices(command, "for", settings.Groups...)
	a.OutputFlag(command)
	return command
}

func showConfig(a *app.App, command *cobra.Command, forCommand string) error {
	flags, err := configFlags(command.Flags(), forCommand)
	if err != nil {
		return err
	}
	_, provenance, problems := settings.Load(flags)
	if done, err := a.PrintObject(provenance); err != nil {
		return err
	} else if !done {
		table := render.NewTable("SETTING", "VALUE", "SOURCE", "DESCRIPTION")
		for _, e := range provenance.Entries {
			table.Add(e.Name, e.Value, string(e.Source), e.Description)
		}
		a.Printf(a.Out, "%s", table)
	}
	if provenance.File == "" {
		a.Printf(a.Err, "\nNo configuration file: neither --config nor %s is set.\n", settings.EnvConfig)
	}
	for _, name := range provenance.UnknownEnv {
		a.Printf(a.Err, "note: %s is set, but is not a Slipway setting\n", name)
	}
	if problems != nil {
		return &app.ExitError{Code: app.ExitUsage, Err: problems}
	}
	return nil
}

// configFlags returns the given flags as flags of one command, with that command's defaults. Without a command it
// returns them unchanged.
func configFlags(given *pflag.FlagSet, forCommand string) (*pflag.FlagSet, error) {
	if forCommand == "" {
		return given, nil
	}
	group := settings.Group(forCommand)
	if !slices.Contains(settings.Groups, group) {
		return nil, app.Usagef("invalid --for %q: must be one of %s", forCommand, strictyaml.List(settings.Groups))
	}
	own := pflag.NewFlagSet(forCommand, pflag.ContinueOnError)
	settings.Register(own, group)
	var err error
	given.Visit(func(f *pflag.Flag) {
		if f.Name == "for" || f.Name == "output" || err != nil {
			return
		}
		if own.Lookup(f.Name) == nil {
			err = app.Usagef("--%s is not a setting of %s", f.Name, forCommand)
			return
		}
		err = own.Set(f.Name, f.Value.String())
	})
	return own, err
}

func versionCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:   "version",
		Short: "Print the version and build information",
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
