// Command slipway is the release engine and its command line: `server`, `worker` and `dev` run it, the other commands
// call its HTTP API.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"slipway.io/slipway/activities/traffic/scriptbox"
	"slipway.io/slipway/cli"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/packages"
	"slipway.io/slipway/cli/settings"
)

// settingsHelp returns the help text about the settings of a group.
func settingsHelp(group settings.Group) string {
	example := settings.First(group)
	return fmt.Sprintf(`

Every flag can also be set by an environment variable (%s for --%s) or in a YAML file (--config). Flags take precedence
over the environment, and the environment over the file. "slipway config" shows each value and where it came from.`,
		settings.EnvName(example), example)
}

// engineCommands returns the commands that run parts of the engine.
func engineCommands(a *app.App) []*cobra.Command {
	return []*cobra.Command{
		engineCommand(settings.Server, runServer, cobra.Command{Short: "Run the API server",
			Long: `Run the API server. It starts and controls releases; workers execute
them, so at least one worker must run too. You can run any number of servers: they have no state.`}),
		engineCommand(settings.Worker, runWorker, cobra.Command{Short: "Run a worker that executes releases",
			Long: `Run a worker that executes releases. A worker connects to
Temporal and to the cluster that it works on; it needs no incoming connections. With --party it serves only that
party's queue, with that party's kubeconfig.`}),
		devCommand(), codecCommand(), packages.Command(a, packageServeCommand()), scriptCommand(a),
	}
}

func packageServeCommand() *cobra.Command {
	return engineCommand(settings.PackageServe, runPackageServe, cobra.Command{Use: "serve",
		Short: "Serve a package store",
		Long: `Serve a package store from a folder or an S3 bucket.
Each party runs a store that its worker and its pods can reach. A folder must be on a persistent volume, and only one
process may serve it; several processes may serve the same bucket. Downloads need only the digest of a package; all
requests that change the store need the token.`,
		Example: `  slipway package serve --package-dir /var/lib/slipway-packages --package-listen 0.0.0.0:8085
  slipway package serve --package-bucket s3://releases/slipway --package-s3-region eu-central-1 \
    --package-token-file token`})
}

func devCommand() *cobra.Command {
	return engineCommand(settings.Dev, runDev, cobra.Command{Short: "Run server and worker in one process",
		Long: `Run server and worker in one process, with an existing
cluster and an existing Temporal server. By default, it installs the custom resource definitions, and the guard in the
API server. If the kubeconfig is a person's, it makes itself a service account and acts as that: the guard cannot
distinguish the engine from a user with the same identity.`,
		Example: `  slipway dev --kubeconfig ~/.kube/config --temporal-address 127.0.0.1:7233`})
}

func codecCommand() *cobra.Command {
	return engineCommand(settings.Codec, runCodec, cobra.Command{Short: "Decrypt payloads for the Temporal UI",
		Long: `Decrypt payloads for the Temporal UI and the temporal
command line, which send it the data they have read from Temporal. Clients of the codec server can read every release:
listen on loopback only, or behind a proxy that authenticates users. In the Temporal UI, set its address under the
codec server icon.`,
		Example: `  slipway codec --temporal-codec-key-dir /etc/slipway/codec-keys --temporal-ui https://temporal.example
  temporal workflow show --workflow-id task/01J9 --codec-endpoint http://127.0.0.1:8086`})
}

// engineCommand completes a command that runs a part of the engine until its context ends. Its default name is the
// settings group.
func engineCommand(group settings.Group, run func(context.Context, settings.Settings) error,
	command cobra.Command) *cobra.Command {
	command.Use, command.Long = cmp.Or(command.Use, string(group)), command.Long+settingsHelp(group)
	command.Args = cobra.NoArgs
	app.RegisterSettings(&command, group)
	command.RunE = func(c *cobra.Command, _ []string) error {
		values, err := app.LoadSettings(c)
		if err != nil {
			return err
		}
		return run(c.Context(), values)
	}
	return &command
}

// scriptCommand is the hidden command in which a worker runs one Lua script of a traffic provider.
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

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal, a second one ends the process immediately.
	context.AfterFunc(ctx, stop)
	a := app.New(os.Stdin, os.Stdout, os.Stderr)
	a.Name = filepath.Base(os.Args[0])
	os.Exit(cli.Run(ctx, a, os.Args[1:], engineCommands(a)...))
}
