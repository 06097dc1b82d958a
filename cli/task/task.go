// Package task implements `slipway task`. A task is one execution of a plan.
package task

import (
	"context"
	"io"
	"net/http"
	"strings"

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
	plan.TaskStopping, plan.TaskStopped,
	plan.TaskInterrupted, plan.TaskSucceeded, plan.TaskFailed}

type tasks = noun.Noun[client.TaskSummary, client.Task]

// Command returns `slipway task`.
func Command(a *app.App) *cobra.Command {
	n := newNoun(a)
	remove := n.DeleteCommand("Delete tasks that have ended, with their records and reports. A task that can still " +
		"continue is not deleted: stop it first.")
	remove.ValidArgsFunction = a.CompleteAll(completion(n, plan.TaskStopped, plan.TaskSucceeded, plan.TaskFailed,
		plan.TaskInterrupted))
	command := &cobra.Command{Use: n.Command, Aliases: []string{"tasks"}, Short: "Watch, pause, resume and stop tasks"}
	command.AddCommand(listCommand(n), n.GetCommand("Show a task with its waves, services and workloads"),
		watchCommand(n),
		reportCommand(n), rerunCommand(n), reverseCommand(n), remove)
	for _, v := range verbs(n) {
		command.AddCommand(n.VerbCommand(v, func(t client.Task) string {
			return "task " + t.ID + " is " + string(t.State) + ": " + render.OneLine(t.Reason)
		}))
	}
	return command
}

func newNoun(a *app.App) *tasks {
	return &tasks{
		App: a, Command: "task", Name: "task", Argument: "ID",
		Page:   pages(client.ListTasksParams{}),
		Key:    func(t client.TaskSummary) string { return t.ID },
		Note:   func(t client.TaskSummary) string { return string(t.State) },
		Titles: []string{"ID", "PLAN", "STATE", "AGE", "TOOK", "REASON"},
		Row: func(t client.TaskSummary) []string {
			return []string{t.ID, t.Plan, string(t.State), a.Age(t.CreatedAt), a.Elapsed(t.StartedAt, t.FinishedAt),
				render.Cell(t.Reason)}
		},
		Empty: "No tasks found.",
		Read: func(ctx context.Context, api *client.Client, id string) (apiclient.Reply[client.Task], error) {
			answer, err := apiclient.Read[client.Task](api.GetTask(ctx, id))
			if a.Output == app.Table && err == nil {
				answer.Value = ReadNames(ctx, api).applyTo(answer.Value)
			}
			return answer, err
		},
		Describe: func(_ *app.App, _ string, t client.Task) error {
			a.Draw(DrawAll(a.Drawing(), t, follow.Footer("history", t.History, t.Workflow)...))
			return nil
		},
		Delete: func(ctx context.Context, api *client.Client, id string) error {
			return apiclient.NoContent(api.DeleteTask(ctx, id))
		},
	}
}

func pages(params client.ListTasksParams) func(context.Context, *client.Client, int, *string) ([]client.TaskSummary,
	string, error) {
	return func(ctx context.Context, api *client.Client, limit int, cursor *string) ([]client.TaskSummary, string,
		error) {
		params.Limit, params.Cursor = &limit, cursor
		return apiclient.ReadPage[client.TaskSummary](api.ListTasks(ctx, &params))
	}
}

// completion lists the newest tasks in these states for shell completion.
func completion(n *tasks, states ...plan.TaskState) app.Lister {
	filtered := *n
	filtered.Page = pages(client.ListTasksParams{State: &states})
	return filtered.Completion
}

// PageOfPlans reads one page of the plans.
func PageOfPlans(ctx context.Context, api *client.Client, limit int, cursor *string) ([]client.PlanSummary, string,
	error) {
	return apiclient.ReadPage[client.PlanSummary](
		api.ListPlans(ctx, &client.ListPlansParams{Limit: &limit, Cursor: cursor}))
}

func planNames(ctx context.Context, api *client.Client) (names []string, err error) {
	plans, _, err := PageOfPlans(ctx, api, apiclient.PageSize, nil)
	for _, p := range plans {
		names = append(names, p.Name+"\t"+render.OneLine(p.Comment))
	}
	return names, err
}

func listCommand(n *tasks) *cobra.Command {
	var ofPlan string
	var states []string
	command := n.ListCommand("List the tasks, newest first", noun.ListOptions{Limited: true, Check: func() error {
		wanted, err := app.ParseOneOf("state", states, allStates)
		params := client.ListTasksParams{State: wanted}
		if ofPlan != "" {
			params.Plan = &ofPlan
		}
		n.Page = pages(params)
		return err
	}})
	command.Example = `  slipway task list --state Running --state Paused
  slipway task list --plan shop --limit 5`
	command.Flags().StringSliceVar(&states, "state", nil,
		"list only tasks in this `state`; can be repeated: "+strictyaml.List(allStates))
	command.Flags().StringVar(&ofPlan, "plan", "", "list only tasks of this `plan`")
	app.FlagChoices(command, "state", allStates...)
	_ = command.RegisterFlagCompletionFunc("plan", n.App.CompleteAll(planNames))
	return command
}

func verbs(n *tasks) []noun.Verb {
	var all []noun.Verb
	add := func(v noun.Verb, legalIn []plan.TaskState,
		send func(context.Context, *client.Client, string, client.VerbRequest) (*http.Response, error)) {
		v.Example = "shop-20261102093000-k3v9q"
		v.Complete = completion(n, legalIn...)
		v.Send = func(ctx context.Context, api *client.Client, id string, who app.ActorFlags) (*http.Response, error) {
			return send(ctx, api, id, client.VerbRequest{Actor: who.Actor, Reason: who.Reason, Key: who.Key})
		}
		v.RepeatArgs = func(id string) string { return id }
		all = append(all, v)
	}
	add(noun.Verb{Name: string(plan.VerbPause), Short: "Pause a task", ExampleReason: "wait for the database team",
		Long: "Pause a task. Services being released are finished; no other service starts until the task is resumed."},
		[]plan.TaskState{plan.TaskPending, plan.TaskRunning}, noun.Sender((*client.Client).PauseTask))
	add(noun.Verb{Name: string(plan.VerbResume), Short: "Resume a task", ExampleReason: "the database is ready",
		Long: "Resume a task that is Pausing, Paused or Interrupted. It continues where it stopped; completed " +
			"services are not repeated."},
		[]plan.TaskState{plan.TaskPausing, plan.TaskPaused, plan.TaskInterrupted},
		noun.Sender((*client.Client).ResumeTask))
	add(noun.Verb{Name: string(plan.VerbApprove), Short: "Start a waiting task outside its release windows",
		ExampleReason: "hotfix, approved by the on-call engineer",
		Long: "Start services that wait for a release window now. A reason is required. The task's times apply again " +
			"from the time when the wait would have ended. To approve a step of a rollout, use `slipway rollout " +
			"approve`."},
		[]plan.TaskState{plan.TaskRunning}, noun.Sender((*client.Client).ApproveTask))
	return append(all, stop(n))
}

// stop returns the verb stop, which can also end the task's rollouts.
func stop(n *tasks) noun.Verb {
	var to string
	send := noun.Sender((*client.Client).StopTask)
	return noun.Verb{Name: string(plan.VerbStop), Short: "Stop a task permanently",
		ExampleReason: "the release was cancelled", Example: "shop-20261102093000-k3v9q",
		Long: "Stop a task permanently. Services being released are finished; the others are never started. A " +
			"stopped task cannot be resumed. Rollouts of the task continue until they end, and may need approvals; " +
			"--to ends them now.",
		Complete: completion(n, plan.TaskPending, plan.TaskRunning, plan.TaskPausing, plan.TaskPaused,
			plan.TaskInterrupted, plan.TaskStopping),
		Flags: func(command *cobra.Command) {
			command.Flags().StringVar(&to, "to", "",
				"also end the rollouts of the task, in `state` stable, new or frozen")
			app.FlagChoices(command, "to", rollout.StopTos...)
		},
		Check: func() error { return app.CheckOneOf("to", to, rollout.StopTos) },
		Send: func(ctx context.Context, api *client.Client, id string, who app.ActorFlags) (*http.Response, error) {
			return send(ctx, api, id, client.TaskStopRequest{Actor: who.Actor, Reason: who.Reason, Key: who.Key,
				To: to})
		},
		RepeatArgs: func(id string) string {
			if to != "" {
				id += " --to " + to
			}
			return id
		}}
}

func reportCommand(n *tasks) *cobra.Command {
	command := &cobra.Command{
		Use:   "report ID",
		Short: "Print a task's report",
		Long: `Print a task's report as Markdown: the state, times and workloads of each service, the history of decisions,
and the plan that would reverse the task. With -o json or yaml, print the same report for programs.`,
		Args: app.ExactName("a task", "ID"), ValidArgsFunction: n.App.Complete(n.Completion),
	}
	return n.App.InitReadCommand(command, nil, func(c *cobra.Command, api *client.Client, args []string) error {
		return report(c.Context(), n.App, api, args[0])
	})
}

func report(ctx context.Context, a *app.App, api *client.Client, id string) error {
	format := client.ReportFormatMarkdown
	if a.Output != app.Table {
		format = client.ReportFormatJSON
	}
	response, err := api.GetTaskReport(ctx, id, &client.GetTaskReportParams{Format: &format})
	if a.Output != app.Table {
		report, err := apiclient.Read[map[string]any](response, err)
		if err != nil {
			return err
		}
		_, err = a.PrintObject(report.Raw)
		return err
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return &apiclient.UnreachableError{Address: response.Request.URL.Host, Cause: err}
	}
	a.Printf(a.Out, "%s\n", strings.TrimRight(string(text), "\n"))
	return nil
}
