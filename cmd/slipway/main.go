// Command slipway is the release engine and its command line: `server`, `worker` and `dev` run it, the other verbs talk to its HTTP API.
package main

import (
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

// settingsHelp is what the help of a command says about the settings of its group.
func settingsHelp(group settings.Group) string {
	example := settings.First(group)
	return fmt.Sprintf(`

Every flag can also be given by the environment (%s for --%s) or in a YAML file (--config); a flag wins over the
environment, that over the file. "slipway config" shows each value and where it came from.`, settings.EnvName(example), example)
}

// engineCommands are the commands that run a part of the engine, and so need more than the command line does.
func engineCommands(a *app.App) []*cobra.Command {
	return []*cobra.Command{
		engineCommand(settings.Server, runServer, "Serve the HTTP API", `Serve the HTTP API. It starts and steers releases; workers carry
them out, so at least one has to run as well. Any number of servers may run side by side: they keep nothing of their own.`),
		engineCommand(settings.Worker, runWorker, "Carry releases out", `Carry releases out. A worker needs Temporal and the cluster that it
works on, and connects outwards only. With --party it serves only that party's queue, with that party's kubeconfig.`),
		devCommand(), codecCommand(), packages.Command(a, packageServeCommand()), scriptCommand(a),
	}
}

func packageServeCommand() *cobra.Command {
	command := engineCommand(settings.PackageServe, runPackageServe, "Serve a store of packages", `Serve a store of packages from a folder or from a bucket of S3. A
party runs one beside its cluster, where both its worker and its pods reach it. A folder belongs on a volume that outlives the process, and
one process serves it at a time; a bucket may be served by several. Downloads need the digest of a package and nothing else; everything that
changes the store needs the token.`)
	command.Use = "serve"
	command.Example = `  slipway package serve --package-dir /var/lib/slipway-packages --package-listen 0.0.0.0:8085
  slipway package serve --package-bucket s3://releases/slipway --package-s3-region eu-central-1 --package-token-file token`
	return command
}

func devCommand() *cobra.Command {
	command := engineCommand(settings.Dev, runDev, "Server and worker in one process", `Server and worker in one process, against a cluster
and a Temporal server that are there already. It installs the custom resource definitions and the guard in the API
server unless told otherwise. Give it a kubeconfig with an identity of its own: the guard can't tell the engine from a person with the same
identity.`)
	command.Example = `  slipway dev --kubeconfig ~/.kube/config --temporal-address 127.0.0.1:7233`
	return command
}

func codecCommand() *cobra.Command {
	command := engineCommand(settings.Codec, runCodec, "Decrypt payloads for the Temporal UI", `Decrypt payloads for the Temporal UI and the temporal
command line, which send it what they have read from Temporal. Whoever reaches it can read every release: let it listen on this machine
alone, or behind a proxy that authenticates people. In the Temporal UI, set its address under the codec server icon.`)
	command.Example = `  slipway codec --temporal-codec-key-dir /etc/slipway/codec-keys --temporal-ui https://temporal.example
  temporal workflow show --workflow-id task/01J9 --codec-endpoint http://127.0.0.1:8086`
	return command
}

// engineCommand runs a part of the engine until its context ends. It is called as the group of its settings, unless it is given another name.
func engineCommand(group settings.Group, run func(context.Context, settings.Settings) error, short, long string) *cobra.Command {
	command := &cobra.Command{Use: string(group), Short: short, Long: long + settingsHelp(group), Args: cobra.NoArgs}
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

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the next one ends the process at once.
	context.AfterFunc(ctx, stop)
	a := app.New(os.Stdin, os.Stdout, os.Stderr)
	a.Name = filepath.Base(os.Args[0])
	os.Exit(cli.Run(ctx, a, os.Args[1:], engineCommands(a)...))
}
