// Package task holds the commands on tasks, the executions of plans.
package task

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/plan"
)

// allStates are the states of a task in the order in which a task goes through them.
var allStates = []plan.TaskState{plan.TaskPending, plan.TaskRunning, plan.TaskPausing, plan.TaskPaused, plan.TaskStopping, plan.TaskStopped,
	plan.TaskInterrupted, plan.TaskSucceeded, plan.TaskFailed}

// Command is `slipway task`.
func Command(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:     "task",
		Aliases: []string{"tasks"},
		Short:   "Tasks: follow, pause, resume and stop what runs",
	}
	command.AddCommand(listCommand(a), getCommand(a), watchCommand(a), reportCommand(a), deleteCommand(a))
	command.AddCommand(verbCommands(a)...)
	return command
}

func listCommand(a *app.App) *cobra.Command {
	var output, planName string
	var states []string
	var most int
	command := &cobra.Command{
		Use:   "list",
		Short: "List the tasks, newest first",
		Example: `  slipway task list --state Running --state Paused
  slipway task list --plan shop --limit 5`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			wanted, err := parseStates(states)
			if err != nil {
				return err
			}
			if most < 0 {
				return app.Usagef("--limit %d is negative: 0 lists all tasks", most)
			}
			params := client.ListTasksParams{}
			if len(wanted) > 0 {
				params.State = &wanted
			}
			if planName != "" {
				params.Plan = &planName
			}
			return list(a, c, params, most, output)
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	command.Flags().StringSliceVar(&states, "state", nil, "only tasks in this `state`; may be repeated: "+join(allStates))
	command.Flags().StringVar(&planName, "plan", "", "only tasks of this `plan`")
	command.Flags().IntVar(&most, "limit", 0, "at most `n` tasks; 0: all")
	_ = command.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(strings.Split(join(allStates), ", "), cobra.ShellCompDirectiveNoFileComp))
	_ = command.RegisterFlagCompletionFunc("plan", a.CompleteAll(app.PlanNames))
	return command
}

func join(states []plan.TaskState) string {
	var names []string
	for _, s := range states {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

// parseStates reads states in any case.
func parseStates(names []string) ([]plan.TaskState, error) {
	var states []plan.TaskState
	for _, name := range names {
		n := slices.IndexFunc(allStates, func(s plan.TaskState) bool { return strings.EqualFold(string(s), name) })
		if n < 0 {
			return nil, app.Usagef("--state %q is none of %s", name, join(allStates))
		}
		states = append(states, allStates[n])
	}
	return states, nil
}

func list(a *app.App, c *cobra.Command, params client.ListTasksParams, most int, output string) error {
	api, err := app.Connect(c)
	if err != nil {
		return err
	}
	tasks, err := apiclient.AllPages(most, func(limit int, cursor *string) ([]client.TaskSummary, string, error) {
		params.Limit, params.Cursor = &limit, cursor
		page, err := apiclient.Read[client.TaskList](api.ListTasks(c.Context(), &params))
		return page.Value.Items, page.Value.NextCursor, err
	})
	if err != nil {
		return err
	}
	if done, err := a.PrintObject(output, client.TaskList{Items: tasks}); done || err != nil {
		return err
	}
	if len(tasks) == 0 {
		a.Printf(a.Err, "There are no such tasks.\n")
		return nil
	}
	table := render.NewTable("ID", "PLAN", "STATE", "AGE", "TOOK", "REASON")
	for _, t := range tasks {
		table.Add(t.ID, t.Plan, string(t.State), a.Age(t.CreatedAt), render.OrDash(a.Took(t.StartedAt, t.FinishedAt)), render.OrDash(t.Reason))
	}
	a.Printf(a.Out, "%s", table)
	return nil
}

func getCommand(a *app.App) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:               "get ID",
		Short:             "Show a task with its waves, services and workloads",
		Args:              app.ExactName("a task", "ID"),
		ValidArgsFunction: a.Complete(app.TaskIDs()),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := app.Connect(c)
			if err != nil {
				return err
			}
			task, err := apiclient.Read[client.Task](api.GetTask(c.Context(), args[0]))
			if err != nil {
				return err
			}
			if done, err := a.PrintObject(output, task.Raw); done || err != nil {
				return err
			}
			describe(a, task.Value)
			return nil
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	return command
}

func describe(a *app.App, t plan.Task) {
	drawing := a.Drawing()
	for _, line := range Whole(drawing, t) {
		a.Printf(a.Out, "%s\n", line)
	}
	if len(t.History) > 0 {
		a.Printf(a.Out, "\nwhat was asked of it\n")
		for _, d := range t.History {
			a.Printf(a.Out, "  %s  %s\n", d.At.Local().Format(time.DateTime), decisionLine(d))
		}
	}
	if t.Workflow != nil {
		a.Printf(a.Out, "\nworkflow %s\n", render.OneLine(strings.TrimSpace(t.Workflow.ID+"  "+t.Workflow.URL)))
	}
}

// decisionLine reads "pause by li via cli, accepted: … (reason given: …)".
func decisionLine(d audit.Entry) string {
	actor := render.OneLine(d.Actor)
	if actor == "" {
		actor = "somebody"
	}
	line := fmt.Sprintf("%s by %s via %s, %s: %s", d.Verb, actor, render.OneLine(d.Via), d.Outcome, render.OneLine(d.Message))
	if d.Reason != "" {
		line += fmt.Sprintf(" (reason given: %s)", render.OneLine(d.Reason))
	}
	return line
}

func deleteCommand(a *app.App) *cobra.Command {
	return a.DeleteCommand(app.Deletion{
		Noun: "task", Argument: "ID", Complete: app.TaskIDs(plan.TaskStopped, plan.TaskSucceeded, plan.TaskFailed, plan.TaskInterrupted),
		Long: "Delete tasks that are over, with their records and reports. A task that can still go on is refused: stop it first.",
		Call: func(c *cobra.Command, api *client.Client, id string) error {
			return apiclient.NoContent(api.DeleteTask(c.Context(), id))
		},
	})
}
