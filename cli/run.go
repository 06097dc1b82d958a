package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
)

// Run executes the command line and returns the process's exit code. The commands that run a part of the engine come from outside.
func Run(ctx context.Context, a *app.App, args []string, engine ...*cobra.Command) int {
	root := rootCommand(a, engine)
	root.SetArgs(args)
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return app.ExitOK
	}
	if !a.Begun {
		a.Printf(a.Err, "error: %s\nSee `%s --help`.\n", err, command.CommandPath())
		return app.ExitUsage
	}
	var exit *app.ExitError
	if errors.As(err, &exit) && exit.Err == nil {
		return exit.Code
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		a.Printf(a.Err, "interrupted\n")
		return app.ExitSignal
	}
	a.Printf(a.Err, "%s", apiclient.Explain(err, a.MostFindings))
	if exit != nil {
		return exit.Code
	}
	return app.ExitFailure
}

// markBegun makes every command of the tree note that it began, which tells errors of usage from the others, and for whom it prints.
func markBegun(a *app.App, command *cobra.Command) {
	if run := command.RunE; run != nil {
		command.RunE = func(c *cobra.Command, args []string) error {
			a.Begun = true
			if form := c.Flags().Lookup("output"); form == nil || form.Value.String() == app.Table {
				a.MostFindings = apiclient.MostFindings
			}
			return run(c, args)
		}
	}
	for _, child := range command.Commands() {
		markBegun(a, child)
	}
}
