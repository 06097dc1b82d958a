package app

import (
	"slices"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/settings"
)

// Connect makes the client of the API that the command's settings name.
func Connect(command *cobra.Command) (*client.Client, error) {
	values, err := LoadSettings(command)
	if err != nil {
		return nil, err
	}
	return apiclient.NewClient(values.API)
}

// ConnectToWrite is Connect for a command that changes something. A person who named no engine is told which one it will be.
func (a *App) ConnectToWrite(command *cobra.Command) (*client.Client, error) {
	values, provenance, err := settings.Load(command.Flags())
	if err != nil {
		return nil, &ExitError{Code: ExitUsage, Err: err}
	}
	chosen := slices.ContainsFunc(provenance.Entries, func(e settings.Entry) bool {
		return e.Name == "api" && e.Source.Kind != settings.FromDefault
	})
	if !chosen && a.ErrIsTerminal {
		a.Printf(a.Err, "engine: %s (the default; --api or SLIPWAY_API names another)\n", values.API)
	}
	return apiclient.NewClient(values.API)
}

// ClientFlags adds the flags of a command that talks to the API.
func ClientFlags(command *cobra.Command) { RegisterSettings(command, settings.Client) }

// Call is what a command does with the API, once its flags and arguments are in order.
type Call func(c *cobra.Command, api *client.Client, args []string) error

// Reading completes a command that asks the API and changes nothing. Check, unless it is nil, says what is wrong with the command line.
func (a *App) Reading(command *cobra.Command, check func(args []string) error, call Call) *cobra.Command {
	return a.calling(command, check, call, Connect)
}

// Writing completes a command that changes something by the API.
func (a *App) Writing(command *cobra.Command, check func(args []string) error, call Call) *cobra.Command {
	return a.calling(command, check, call, a.ConnectToWrite)
}

func (a *App) calling(command *cobra.Command, check func(args []string) error, call Call,
	connect func(*cobra.Command) (*client.Client, error)) *cobra.Command {
	ClientFlags(command)
	a.OutputFlag(command)
	command.RunE = func(c *cobra.Command, args []string) error {
		if check != nil {
			if err := check(args); err != nil {
				return err
			}
		}
		api, err := connect(c)
		if err != nil {
			return err
		}
		return call(c, api, args)
	}
	return command
}
