// Package cli is what a person types: the tree of commands, their help and their exit codes. A package per noun holds the commands on it.
package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/appimage"
	"slipway.io/slipway/cli/fetch"
	"slipway.io/slipway/cli/guard"
	"slipway.io/slipway/cli/healthcheck"
	"slipway.io/slipway/cli/party"
	"slipway.io/slipway/cli/plan"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/cli/repair"
	"slipway.io/slipway/cli/rollout"
	"slipway.io/slipway/cli/service"
	"slipway.io/slipway/cli/serving"
	"slipway.io/slipway/cli/task"
	"slipway.io/slipway/cli/trafficrouting"
	"slipway.io/slipway/cli/version"
)

// The groups of the help page.
const (
	groupRelease = "release"
	groupEngine  = "engine"
	groupOther   = "other"
)

// The help lists commands in the order in which people need them.
func init() { cobra.EnableCommandSorting = false }

func rootCommand(a *app.App, engine []*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "slipway",
		Short: "Release services in a planned order, and workloads step by step",
		Long: `Slipway releases services in a planned order. A plan names services of the catalogue and what to do with each;
running it makes a task, which goes wave by wave, and which can be paused, resumed and stopped at any time.
A rollout releases one workload as a canary or blue-green, step by step, and waits for approvals. A serving is what several parties run
together.

Exit codes: 0 done; 1 an error, or a failed release; 2 wrong usage or settings; others in "slipway task watch --help",
"slipway rollout watch --help" and "slipway serving watch --help".
Output: a table for people, -o json or -o yaml for programs. NO_COLOR switches colours off.`,
		Example: `  slipway dev                              # the engine in one process, against your cluster and your Temporal
  slipway service apply -f services.yaml   # fill the catalogue
  slipway validate shop.yaml               # the waves of a plan, and all that is wrong with it
  slipway plan apply -f shop.yaml          # save the plan under the name shop
  slipway plan run shop --watch            # release, and follow it to its end
  slipway rollout start -f canary.yaml -w  # a canary of one workload, followed to its end
  slipway rollout approve shop/web         # let it go on`,
		SilenceErrors: true,
		SilenceUsage:  true,
		// Cobra makes --version of it.
		Version: version.This().String(),
	}
	root.SetVersionTemplate("{{.Version}}")
	root.AddGroup(
		&cobra.Group{ID: groupRelease, Title: "Release:"},
		&cobra.Group{ID: groupEngine, Title: "Run the engine:"},
		&cobra.Group{ID: groupOther, Title: "Other:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			if !c.Hidden {
				c.GroupID = group
			}
			root.AddCommand(c)
		}
	}
	add(groupRelease, plan.ValidateCommand(a), service.Command(a), plan.Command(a), task.Command(a), rollout.Command(a),
		serving.Command(a), appimage.Command(a), trafficrouting.Command(a), party.Command(a), repair.Command(a))
	add(groupEngine, append(engine, guard.Command(a), configCommand(a), healthcheck.Command(a), fetch.Command(a))...)
	add(groupOther, versionCommand(a))
	root.SetHelpCommandGroupID(groupOther)
	root.SetCompletionCommandGroupID(groupOther)
	wrapHelp(root)
	refuseStrays(a, root)
	markBegun(a, root)
	return root
}

// refuseStrays makes commands that only hold others refuse a word that is none of these, where cobra would show the help and exit 0.
func refuseStrays(a *app.App, command *cobra.Command) {
	if command.HasSubCommands() && !command.Runnable() {
		command.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
		command.DisableFlagsInUseLine = true
		command.Args = func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			c.SuggestionsMinimumDistance = 2
			if near := c.SuggestionsFor(args[0]); len(near) > 0 {
				return fmt.Errorf("unknown command %q for %q; did you mean %s?", args[0], c.CommandPath(), near[0])
			}
			return fmt.Errorf("unknown command %q for %q", args[0], c.CommandPath())
		}
	}
	for _, child := range command.Commands() {
		refuseStrays(a, child)
	}
}

const helpColumns = 100

func wrapHelp(command *cobra.Command) {
	command.Long = render.Prose(command.Long, helpColumns)
	for _, child := range command.Commands() {
		wrapHelp(child)
	}
	if command.HasParent() {
		return
	}
	flags := fmt.Sprintf(".FlagUsagesWrapped %d", helpColumns)
	command.SetUsageTemplate(strings.ReplaceAll(command.UsageTemplate(), ".FlagUsages", flags))
}

// pluginName is the program's name under which kubectl finds it as a plugin.
const pluginName = "kubectl-slipway"

// Run executes the command line and returns the process's exit code. The commands that run a part of the engine come from outside.
func Run(ctx context.Context, a *app.App, args []string, engine ...*cobra.Command) int {
	root := rootCommand(a, engine)
	if a.Name == pluginName {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl slipway"}
	}
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
