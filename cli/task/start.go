package task

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/noun"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/window"
)

// Start is a request that starts a task.
type Start struct {
	// Call is the operation, on the object of this name.
	Call  apiclient.Call
	Name  string
	Times TimesFlags
	// RepeatCommand is the command for repeating the request, without --key and the times. StartedText is the message
	// when the task has started, before the task's ID.
	RepeatCommand, StartedText string
}

// RunPlan returns the request that runs a plan, with these times.
func RunPlan(name string, times TimesFlags) Start {
	return Start{Call: apiclient.NamedBodyWith((*client.Client).ExecutePlanWithBody), Name: name, Times: times,
		RepeatCommand: "slipway plan run " + name, StartedText: "plan " + name + " is running as task "}
}

// Run starts the task, and watches it if --watch is set. If the response is lost, it prints how to retry without
// starting another task.
func (s Start) Run(ctx context.Context, a *app.App, api *client.Client, who app.ActorFlags,
	options follow.Options) error {
	who.SetDefaults()
	body, err := json.Marshal(client.ExecuteRequest{Actor: who.Actor, Reason: who.Reason, NotBefore: s.Times.NotBefore,
		Windows: s.Times.Windows, Freezes: s.Times.Freezes})
	if err != nil {
		return err
	}
	task, err := apiclient.Read[client.ExecuteResult](apiclient.Request{Call: s.Call, Name: s.Name,
		ContentType: apiclient.JSONBody, Body: body, IdempotencyKey: who.Key}.Send(ctx, api))
	if apiclient.OutcomeUnknown(err) {
		a.Printf(a.Err, "It is unknown whether the task was started. It is safe to repeat the command with the same "+
			"key:\n  %s%s --key %s\n", s.RepeatCommand, s.Times.CommandArgs(), who.Key)
	}
	if err != nil {
		return err
	}
	started := noun.Started{Name: task.Value.ID, Raw: task.Raw, Text: s.StartedText + task.Value.ID}
	for _, warning := range task.Value.Warnings {
		started.Warnings = append(started.Warnings, warning.Reason)
	}
	return newNoun(a).ReportStarted(ctx, api, started, options)
}

// TimesFlags are the flags for when services may start.
type TimesFlags struct {
	window.Times
	notBefore, file string
}

// Register adds the flags to a command.
func (f *TimesFlags) Register(command *cobra.Command) {
	command.Flags().StringVar(&f.notBefore, "not-before", "",
		"do not start before this `time`, such as 2026-12-01T06:00:00+01:00")
	command.Flags().StringVar(&f.file, "times", "", "`file` with notBefore, windows and freezes")
	_ = command.MarkFlagFilename("times", "yaml", "yml", "json")
}

// Read parses the flags and the file, and returns all errors in them.
func (f *TimesFlags) Read() error {
	flag, own := window.Times{NotBefore: f.notBefore}, &strictyaml.Findings{}
	flag.CheckTimes("", own)
	for _, wrong := range own.Sorted() {
		return app.Usagef("--not-before: %s", wrong.Reason)
	}
	if f.file == "" {
		f.Times = flag
		return nil
	}
	text, err := os.ReadFile(f.file)
	if err != nil {
		return app.Usagef("--times: %w", err)
	}
	root, found, ok := strictyaml.Parse(text)
	if ok {
		f.Times = window.Read(root.Mapping(window.Keys...))
	}
	if f.NotBefore != "" && f.notBefore != "" {
		return app.Usagef("notBefore is set both in %s and by --not-before: use only one of them", f.file)
	}
	f.NotBefore += f.notBefore
	f.CheckTimes("", found)
	if wrong := found.Sorted(); len(wrong) > 0 {
		return app.Usagef("invalid times in %s:\n%w", f.file, wrong)
	}
	return nil
}

// CommandArgs returns the flags for repeating the command, each preceded by a space.
func (f *TimesFlags) CommandArgs() (all string) {
	if f.notBefore != "" {
		all += " --not-before " + f.notBefore
	}
	if f.file != "" {
		all += " --times " + f.file
	}
	return all
}

func rerunCommand(n *tasks) *cobra.Command {
	var who app.ActorFlags
	var options follow.Options
	var times TimesFlags
	command := &cobra.Command{
		Use: "rerun ID", Short: "Rerun the failed and skipped services of a task",
		Long: `Rerun the failed and skipped services of a task that has ended. The rerun is a new task of the same plan, with
these services in the same order. Later changes of the plan are ignored; the catalogue is used as it is now. The times
of the old task apply again, unless --not-before or --times sets others.

With --watch, the command watches the task until it ends, and the exit code is the outcome:

` + WatchExitCodes,
		Example:           `  slipway task rerun shop-20261102093000-k3v9q --reason "the image has been pushed" --watch`,
		ValidArgsFunction: n.App.Complete(n.Filtered(inStates(plan.TaskFailed, plan.TaskStopped)).Completion),
	}
	n.InitCommand(command, n.App.ConnectToWrite, func() error {
		return errors.Join(options.Check(command), times.Read())
	}, func(c *cobra.Command, api *client.Client, id string) error {
		return Start{Call: apiclient.NamedBodyWith((*client.Client).RerunTaskWithBody), Name: id, Times: times,
			RepeatCommand: "slipway task rerun " + id, StartedText: "task " + id + " is rerun as task ",
		}.Run(c.Context(), n.App, api, who, options)
	})
	who.Flags(command, "idempotency `key`, unique to this run, such as a CI pipeline ID")
	options.StartFlags(command, WatchHelp)
	times.Register(command)
	return command
}

func reverseCommand(n *tasks) *cobra.Command {
	a := n.App
	var who app.ActorFlags
	var options follow.Options
	var run bool
	command := &cobra.Command{
		Use: "reverse ID", Short: "Create a plan that reverses a task",
		Long: `Create a plan that reverses the changes of a task that has ended: pod templates, replica counts and code
packages, in reverse order. The task's report ends with the same plan. A task has one reverse plan: repeating the
command returns it, even if it was edited.

Nothing is changed until the plan is run. --run runs it immediately; with --watch, the exit code is the outcome, as for
"slipway plan run". The release windows and freezes of the task's plan do not apply to the reverse plan, so that a
rollback is always possible.`,
		Example: `  slipway task reverse shop-20261102093000-k3v9q
  slipway task reverse shop-20261102093000-k3v9q --run --watch --reason "errors since 2.4"`,
		ValidArgsFunction: a.Complete(
			n.Filtered(inStates(plan.TaskSucceeded, plan.TaskFailed, plan.TaskStopped)).Completion),
	}
	n.InitCommand(command, n.App.ConnectToWrite, func() error {
		if options.Watch && !run {
			return app.Usagef("--watch requires --run")
		}
		return options.Check(command)
	}, func(c *cobra.Command, api *client.Client, id string) error {
		made, err := apiclient.Read[client.ReversePlan](api.ReverseTask(c.Context(), id))
		if err != nil {
			return err
		}
		for _, note := range made.Value.Notes {
			a.Printf(a.Err, "note: %s\n", render.OneLine(note))
		}
		if run {
			return RunPlan(made.Value.Name, TimesFlags{}).Run(c.Context(), a, api, who, options)
		}
		return a.Print(made.Raw, func() {
			what := "created"
			if !made.Value.Created {
				what = "already exists"
			}
			a.Printf(a.Out, "plan %s %s\n", made.Value.Name, what)
			a.Printf(a.Err, "To see what it would change: slipway plan diff %s\nTo run it: slipway plan run %s\n",
				made.Value.Name, made.Value.Name)
		})
	})
	command.Flags().BoolVar(&run, "run", false, "run the plan immediately, even during a freeze of the task's plan")
	who.Flags(command, "with --run: idempotency `key`, unique to this run, such as a CI pipeline ID")
	options.StartFlags(command, WatchHelp)
	return command
}

// HistoryTitles and HistoryRow define the table of a plan's tasks.
var HistoryTitles = []string{"TASK", "STATE", "STARTED", "TOOK", "BY", "DONE", "FAILED", "FROM", "REASON"}

// HistoryRow returns a row of HistoryTitles.
func HistoryRow(a *app.App, t client.TaskSummary) []string {
	done, failed := "", ""
	if s := t.Services; s != nil {
		done = render.Fraction(s.Succeeded, s.Total)
		if s.Failed > 0 {
			failed = render.Fraction(s.Failed, s.Total)
		}
	}
	started := ""
	if t.StartedAt != nil {
		started = render.Clock(*t.StartedAt, a.Now())
	}
	return []string{t.ID, string(t.State), started, a.Elapsed(t.StartedAt, t.FinishedAt), t.Actor, done, failed,
		origin(t), render.Cell(t.Reason)}
}

// origin returns the earlier task that a task reruns or reverses.
func origin(t client.TaskSummary) string {
	switch {
	case t.RerunOf != "":
		return "rerun of " + t.RerunOf
	case t.ReverseOf != "":
		return "reverse of " + t.ReverseOf
	}
	return ""
}
