// Command slipway is the release engine and its command line: `server`, `worker` and `dev` run it, the other verbs talk to its HTTP API.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"slipway.io/slipway/cli"
	"slipway.io/slipway/cli/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the next one ends the process at once.
	context.AfterFunc(ctx, stop)
	a := app.New(os.Stdin, os.Stdout, os.Stderr)
	os.Exit(cli.Run(ctx, a, os.Args[1:], engineCommands(a)...))
}

// engineCommands are the commands that run a part of the engine, and so need more than the command line does.
func engineCommands(a *app.App) []*cobra.Command {
	return []*cobra.Command{serverCommand(), workerCommand(), devCommand(), scriptCommand(a)}
}
