// Package task implements `slipway task`. A task is one execution of a plan.
package task

import (
	"context"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/noun"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/strictyaml"
)

var allStates = []plan.TaskState{plan.TaskPending, plan.TaskRunning, plan.TaskPausing, plan.TaskPaused,
	plan.TaskStopping, plan.TaskStopped, plan.TaskInterrupted, plan.TaskSucceeded, plan.TaskFailed}

type tasks = noun.Noun[client.TaskSummary, client.Task]

// Command returns `slipway task`.
func Command(a *app.App) *cobra.Command {
	n := newNoun(a)
	remove := n.DeleteCommand("Delete tasks that have ended, with their records and reports. A task that can still " +
		"continue is not deleted: stop it first.")
	remove.ValidArgsFunction = a.CompleteAll(n.Filtered(inStates(plan.TaskStopped, plan.TaskSucceeded, plan.TaskFailed,
		plan.TaskInterrupted)).Completion)
	command := &cobra.Command{Use: n.Command, Aliases: []string{"tasks"}, Short: "Watch, pause, resume and stop tasks"}
	command.AddCommand(listCommand(n), n.GetCommand("Show a task with its waves, services and workloads", ""),
		n.WatchCommand("waves and services", "While a task is Paused or Interrupted, the command waits too, unless "+
			"flags say otherwise.", "shop-20261102093000-k3v9q --timeout 30m --exit-on-interrupted --exit-on-paused",
			n.Watch), reportCommand(n), rerunCommand(n), reverseCommand(n), remove)
	for _, v := range verbs {
		command.AddCommand(n.VerbCommand(v, func(t client.Task) string {
			return "task " + t.ID + " is " + string(t.State) + ": " + render.OneLine(t.Reason)
		}))
	}
	return command
}

var calls = noun.Calls{List: ListCall, Get: apiclient.Named((*client.Client).GetTask),
	Delete: apiclient.Named((*client.Client).DeleteTask), Watch: apiclient.NamedWith((*client.Client).WatchTask),
	Verbs: map[string]apiclient.Call{
		string(plan.VerbPause):   apiclient.NamedBodyWith((*client.Client).PauseTaskWithBody),
		string(plan.VerbResume):  apiclient.NamedBodyWith((*client.Client).ResumeTaskWithBody),
		string(plan.VerbApprove): apiclient.NamedBodyWith((*client.Client).ApproveTaskWithBody),
		string(plan.VerbStop):    apiclient.NamedBodyWith((*client.Client).StopTaskWithBody)}}

// ListCall lists tasks.
var ListCall = apiclient.List((*client.Client).ListTasks)

func newNoun(a *app.App) *tasks {
	var names Names
	return &tasks{
		App: a, Command: "task", Name: "task", Argument: "ID", Example: "shop-20261102093000-k3v9q", Calls: calls,
		Key:    func(t client.TaskSummary) string { return t.ID },
		Note:   func(t client.TaskSummary) string { return string(t.State) },
		Titles: []string{"ID", "PLAN", "STATE", "AGE", "TOOK", "REASON"},
		Row: func(t client.TaskSummary) []string {
			return []string{t.ID, t.Plan, string(t.State), a.Age(t.CreatedAt), a.Elapsed(t.StartedAt, t.FinishedAt),
				render.Cell(t.Reason)}
		},
		Empty:   "No tasks found.",
		Prepare: func(ctx context.Context, api *client.Client) { names = ReadNames(ctx, api) },
		Describe: func(_ string, t client.Task) error {
			a.Draw(DrawAll(a.Drawing(), names.applyTo(t), follow.Footer(t.History, t.RefusalsDropped, t.Workflow)...))
			return nil
		},
		Release: noun.Release[plan.Task]{Flags: WatchHelp, ExitCodes: WatchExitCodes, Ended: Ended, ExitCode: exitCodeOf,
			Renderer: follow.Renderer[plan.Task]{
				Fit: func(d render.Drawing, t plan.Task, width, height int) []string {
					return Fit(d, names.applyTo(t), width, height)
				},
				Changes: func(before, now plan.Task, look time.Time) []follow.Change {
					return Changes(before, names.applyTo(now), look)
				},
				Summary: Summary,
			}},
	}
}

// inStates selects the tasks in these states.
func inStates(states ...plan.TaskState) url.Values {
	filter := url.Values{}
	for _, state := range states {
		filter.Add("state", string(state))
	}
	return filter
}

func planNames(ctx context.Context, api *client.Client) (names []string, err error) {
	plans, err := apiclient.ReadAll[client.PlanSummary](ctx, api,
		apiclient.Request{Call: apiclient.List((*client.Client).ListPlans)}, apiclient.PageSize)
	for _, p := range plans {
		names = append(names, p.Name+"\t"+render.OneLine(p.Comment))
	}
	return names, err
}

func listCommand(n *tasks) *cobra.Command {
	var ofPlan string
	var states []string
	command := n.ListCommand("List the tasks, newest first", func() error {
		wanted, err := app.ParseOneOf("state", states, allStates)
		n.Filter = url.Values{"state": wanted}
		if ofPlan != "" {
			n.Filter.Set("plan", ofPlan)
		}
		return err
	})
	command.Example = `  slipway task list --state Running --state Paused
  slipway task list --plan shop --limit 5`
	command.Flags().StringSliceVar(&states, "state", nil,
		"list only tasks in this `state`; can be repeated: "+strictyaml.List(allStates))
	command.Flags().StringVar(&ofPlan, "plan", "", "list only tasks of this `plan`")
	app.FlagChoices(command, "state", allStates...)
	_ = command.RegisterFlagCompletionFunc("plan", n.App.CompleteAll(planNames))
	return command
}

// verbs are the verbs in the order of the help.
var verbs = []noun.Verb[plan.Task]{
	{Name: string(plan.VerbPause), Short: "Pause a task", ExampleReason: "wait for the database team",
		Long:   "Pause a task. Services being released are finished; no other service starts until the task is resumed.",
		Filter: inStates(plan.TaskPending, plan.TaskRunning)},
	{Name: string(plan.VerbResume), Short: "Resume a task", ExampleReason: "the database is ready",
		Long: "Resume a task that is Pausing, Paused or Interrupted. It continues where it stopped; completed " +
			"services are not repeated.",
		Filter: inStates(plan.TaskPausing, plan.TaskPaused, plan.TaskInterrupted)},
	{Name: string(plan.VerbApprove), Short: "Start a waiting task outside its release windows",
		ExampleReason: "hotfix, approved by the on-call engineer",
		Long: "Start services that wait for a release window now. A reason is required. The task's times apply again " +
			"from the time when the wait would have ended. To approve a step of a rollout, use `slipway rollout " +
			"approve`.",
		Filter: inStates(plan.TaskRunning)},
	{Name: string(plan.VerbStop), Short: "Stop a task permanently", ExampleReason: "the release was cancelled",
		Long: "Stop a task permanently. Services being released are finished; the others are never started. A " +
			"stopped task cannot be resumed. Rollouts of the task continue until they end, and may need approvals; " +
			"--to ends them now.",
		Filter: inStates(plan.TaskPending, plan.TaskRunning, plan.TaskPausing, plan.TaskPaused, plan.TaskInterrupted,
			plan.TaskStopping),
		Flags: func(command *cobra.Command, body *noun.VerbBody) {
			command.Flags().StringVar(&body.To, "to", "",
				"also end the rollouts of the task, in `state` stable, new or frozen")
			app.FlagChoices(command, "to", rollout.StopTos...)
		},
		Check: func(body noun.VerbBody) error { return app.CheckOneOf("to", body.To, rollout.StopTos) }},
}

func reportCommand(n *tasks) *cobra.Command {
	command := &cobra.Command{
		Use:   "report ID",
		Short: "Print a task's report",
		Long: `Print a task's report as Markdown: the state, times and workloads of each service, the history of decisions,
and the plan that would reverse the task. With -o json or yaml, print the same report for programs.`,
	}
	return n.InitCommand(command, app.Connect, nil, func(c *cobra.Command, api *client.Client, id string) error {
		request := apiclient.Request{Call: apiclient.NamedWith((*client.Client).GetTaskReport), Name: id,
			Query: url.Values{"format": {"json"}}}
		if n.App.Output != app.Table {
			report, err := apiclient.Read[map[string]any](request.Send(c.Context(), api))
			if err != nil {
				return err
			}
			return n.App.Print(report.Raw, nil)
		}
		request.Query.Set("format", "markdown")
		response, err := request.Send(c.Context(), api)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			return &apiclient.UnreachableError{Address: response.Request.URL.Host, Cause: err}
		}
		n.App.Printf(n.App.Out, "%s\n", strings.TrimRight(string(text), "\n"))
		return nil
	})
}
