// Package cli is the command line: the tree of commands, their help and their exit codes. Each noun has its own package
// of commands.
package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/appimage"
	"slipway.io/slipway/cli/catalogue"
	"slipway.io/slipway/cli/fetch"
	"slipway.io/slipway/cli/guard"
	"slipway.io/slipway/cli/healthcheck"
	"slipway.io/slipway/cli/plan"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/cli/repair"
	"slipway.io/slipway/cli/rollout"
	"slipway.io/slipway/cli/serving"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/cli/task"
	"slipway.io/slipway/cli/version"
	"slipway.io/slipway/release/strictyaml"
)

// The help lists commands in the order they were added.
func init() { cobra.EnableCommandSorting = false }

func rootCommand(a *app.App, engine []*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "slipway",
		Short: "Release services in a planned order, and workloads step by step",
		Long: `Slipway releases services and workloads on Kubernetes.

A plan lists services of the catalogue and the operation for each. Running a plan starts a task, which executes it wave
by wave; you can pause, resume and stop the task at any time. A rollout releases one workload step by step, as a canary
or blue-green release, and can wait for approvals. A serving runs on the clusters of several parties.

Exit codes: 0 success; 1 an error or a failed release; 2 wrong usage or settings. For others, see "slipway task watch
--help", "slipway rollout watch --help" and "slipway serving watch --help".

Output: tables by default, -o json or -o yaml for programs. NO_COLOR disables colours.`,
		Example: `  slipway dev                              # run the engine in one process, on your cluster and Temporal
  slipway service apply -f services.yaml   # add services to the catalogue
  slipway validate shop.yaml               # validate a plan and show its waves
  slipway plan apply -f shop.yaml          # save the plan as shop
  slipway plan run shop --watch            # run the plan and watch the task until it ends
  slipway rollout start -f canary.yaml -w  # start a canary release of one workload and watch it
  slipway rollout approve shop/web         # approve its waiting step`,
		SilenceErrors: true,
		SilenceUsage:  true,
		// Cobra adds --version.
		Version: version.This().String(),
	}
	root.SetVersionTemplate("{{.Version}}")
	add := func(group, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: group, Title: title})
		for _, c := range commands {
			if !c.Hidden {
				c.GroupID = group
			}
			root.AddCommand(c)
		}
	}
	add("release", "Release:", plan.ValidateCommand(a), catalogue.ServiceCommand(a), plan.Command(a), task.Command(a),
		rollout.Command(a), serving.Command(a), appimage.Command(a), catalogue.TrafficRoutingCommand(a),
		catalogue.PartyCommand(a), repair.Command(a))
	add("engine", "Run the engine:", append(engine, guard.Command(a), configCommand(a), healthcheck.Command(a),
		fetch.Command(a))...)
	add("other", "Other:", versionCommand(a))
	root.SetHelpCommandGroupID("other")
	root.SetCompletionCommandGroupID("other")
	flags := fmt.Sprintf(".FlagUsagesWrapped %d", helpColumns)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", flags))
	complete(a, root)
	return root
}

const helpColumns = 100

// complete sets what all commands share, for a command and those below it.
func complete(a *app.App, command *cobra.Command) {
	command.Long = render.WrapText(command.Long, helpColumns)
	if command.HasSubCommands() && !command.Runnable() {
		rejectUnknownCommands(command)
	}
	recordArgsAccepted(a, command)
	for _, child := range command.Commands() {
		complete(a, child)
	}
}

// rejectUnknownCommands makes a group of commands reject unknown ones; cobra would print the help and exit with 0.
func rejectUnknownCommands(command *cobra.Command) {
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

// pluginName is the program name of the kubectl plugin.
const pluginName = "kubectl-slipway"

// Run executes the command line and returns the exit code of the process. engine holds the commands that run parts of
// the engine.
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
	if !a.ArgsAccepted {
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
	a.Printf(a.Err, "%s", apiclient.Explain(err, a.MaxFindings))
	if exit != nil {
		return exit.Code
	}
	return app.ExitFailure
}

// recordArgsAccepted makes a command record that its arguments were accepted, so that earlier errors count as usage
// errors. It also limits the findings in text output.
func recordArgsAccepted(a *app.App, command *cobra.Command) {
	run := command.RunE
	if run == nil {
		return
	}
	command.RunE = func(c *cobra.Command, args []string) error {
		a.ArgsAccepted = true
		if form := c.Flags().Lookup("output"); form == nil || form.Value.String() == app.Table {
			a.MaxFindings = apiclient.MaxFindings
		}
		return run(c, args)
	}
}

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
	err = a.Print(provenance, func() {
		table := render.NewTable("SETTING", "VALUE", "SOURCE", "DESCRIPTION")
		for _, e := range provenance.Entries {
			table.Add(e.Name, e.Value, string(e.Source), e.Description)
		}
		a.Printf(a.Out, "%s", table)
	})
	if err != nil {
		return err
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
			return a.Print(version.This(), func() { a.Printf(a.Out, "%s", version.This()) })
		},
	}
	a.OutputFlag(command)
	return command
}
