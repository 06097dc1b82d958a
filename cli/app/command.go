package app

import (
	"context"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
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
	return apiclient.NewClient(values)
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
	return apiclient.NewClient(values)
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

// RegisterSettings adds the flags of the groups' settings, with shell completion.
func RegisterSettings(command *cobra.Command, groups ...settings.Group) {
	settings.Register(command.Flags(), groups...)
	_ = command.MarkFlagFilename(settings.FlagConfig, "yaml", "yml")
	for _, name := range []string{"kubeconfig", "api-token-file", "api-cert-file", "api-key-file", "api-ca-file",
		"package-token-file", "package-cert-file", "package-key-file", "package-store-token-file"} {
		if command.Flags().Lookup(name) != nil {
			_ = command.MarkFlagFilename(name)
		}
	}
	if command.Flags().Lookup("package-dir") != nil {
		_ = command.MarkFlagDirname("package-dir")
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

// completionTimeout is how long a shell waits for names; a server that is away must not hold up the keyboard.
const completionTimeout = 2 * time.Second

// Lister asks the API for names, each with a tab and a note where there is something to say.
type Lister func(ctx context.Context, api *client.Client) ([]string, error)

// Complete completes the first argument with what the API knows.
func (a *App) Complete(list Lister) cobra.CompletionFunc {
	every := a.CompleteAll(list)
	return func(c *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return every(c, args, start)
	}
}

// CompleteAll completes every argument with what the API knows and is not there yet.
func (a *App) CompleteAll(list Lister) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
		defer cancel()
		api, err := Connect(c)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names, err := list(ctx, api)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names = slices.DeleteFunc(names, func(entry string) bool {
			name, _, _ := strings.Cut(entry, "\t")
			return slices.Contains(args, name) || !strings.HasPrefix(name, start)
		})
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// Who says in whose name a command acts, why, and by which idempotency key.
type Who struct {
	Actor, Reason, Key string
}

// Flags adds the flags that say who acts, and why; and --key, with what it is good for.
func (w *Who) Flags(command *cobra.Command, key string) {
	f := command.Flags()
	f.StringVar(&w.Actor, "actor", "", "in whose `name` to act; it is recorded (default: the operating system's user)")
	f.StringVarP(&w.Reason, "reason", "m", "", "why; it is recorded, and shown in the report")
	f.StringVar(&w.Key, "key", "", key+" (default: a random one)")
}

// Complete chooses the actor and the key where nobody has: the operating system's user, and a random key.
func (w *Who) Complete() {
	if w.Key == "" {
		w.Key = uuid.NewString()
	}
	if w.Actor = strings.TrimSpace(w.Actor); w.Actor != "" {
		return
	}
	w.Actor = SystemUser()
}

// SystemUser is the name of the operating system's user, "" when it has none.
func SystemUser() string {
	current, err := user.Current()
	if err != nil {
		return ""
	}
	return current.Username
}
