package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/plan"
)

// taskStates are the states of a task in the order in which a task goes through them.
var taskStates = []plan.TaskState{plan.TaskPending, plan.TaskRunning, plan.TaskPausing, plan.TaskPaused, plan.TaskStopping, plan.TaskStopped,
	plan.TaskInterrupted, plan.TaskSucceeded, plan.TaskFailed}

func (a *app) taskCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "task",
		Aliases: []string{"tasks"},
		Short:   "Tasks: follow, pause, resume and stop what runs",
	}
	command.AddCommand(a.taskListCommand(), a.taskGetCommand(), a.taskWatchCommand(), a.taskReportCommand(), a.taskDeleteCommand())
	command.AddCommand(a.taskVerbCommands()...)
	return command
}

func (a *app) taskListCommand() *cobra.Command {
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
				return usagef("--limit %d is negative: 0 lists all tasks", most)
			}
			params := client.ListTasksParams{}
			if len(wanted) > 0 {
				params.State = &wanted
			}
			if planName != "" {
				params.Plan = &planName
			}
			return a.listTasks(c, params, most, output)
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	command.Flags().StringSliceVar(&states, "state", nil, "only tasks in this `state`; may be repeated: "+join(taskStates))
	command.Flags().StringVar(&planName, "plan", "", "only tasks of this `plan`")
	command.Flags().IntVar(&most, "limit", 0, "at most `n` tasks; 0: all")
	_ = command.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(strings.Split(join(taskStates), ", "), cobra.ShellCompDirectiveNoFileComp))
	_ = command.RegisterFlagCompletionFunc("plan", a.completeAll(planNames))
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
		n := slices.IndexFunc(taskStates, func(s plan.TaskState) bool { return strings.EqualFold(string(s), name) })
		if n < 0 {
			return nil, usagef("--state %q is none of %s", name, join(taskStates))
		}
		states = append(states, taskStates[n])
	}
	return states, nil
}

func (a *app) listTasks(c *cobra.Command, params client.ListTasksParams, most int, output string) error {
	api, err := connect(c)
	if err != nil {
		return err
	}
	tasks, err := allPages(most, func(limit int, cursor *string) ([]client.TaskSummary, string, error) {
		params.Limit, params.Cursor = &limit, cursor
		page, err := read[client.TaskList](api.ListTasks(c.Context(), &params))
		return page.value.Items, page.value.NextCursor, err
	})
	if err != nil {
		return err
	}
	if done, err := a.printObject(output, client.TaskList{Items: tasks}); done || err != nil {
		return err
	}
	if len(tasks) == 0 {
		a.printf(a.err, "There are no such tasks.\n")
		return nil
	}
	table := newTable("ID", "PLAN", "STATE", "AGE", "TOOK", "REASON")
	for _, t := range tasks {
		table.add(t.ID, t.Plan, string(t.State), a.age(t.CreatedAt), orDash(a.took(t.StartedAt, t.FinishedAt)), orDash(clipped(oneLine(t.Reason), 60)))
	}
	a.printf(a.out, "%s", table)
	return nil
}

// took is how long something ran, or has run so far; empty when it has not begun.
func (a *app) took(from, to *time.Time) string {
	switch {
	case from == nil:
		return ""
	case to == nil:
		return shortDuration(a.now().Sub(*from))
	}
	return shortDuration(to.Sub(*from))
}

func (a *app) taskGetCommand() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:               "get ID",
		Short:             "Show a task with its waves, services and workloads",
		Args:              exactName("a task", "ID"),
		ValidArgsFunction: a.complete(taskIDs()),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := connect(c)
			if err != nil {
				return err
			}
			task, err := read[client.Task](api.GetTask(c.Context(), args[0]))
			if err != nil {
				return err
			}
			if done, err := a.printObject(output, task.raw); done || err != nil {
				return err
			}
			a.describeTask(task.value)
			return nil
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	return command
}

func (a *app) describeTask(t plan.Task) {
	drawing := a.drawing()
	for _, line := range drawing.whole(t) {
		a.printf(a.out, "%s\n", line)
	}
	if len(t.History) > 0 {
		a.printf(a.out, "\nwhat was asked of it\n")
		for _, d := range t.History {
			a.printf(a.out, "  %s  %s\n", d.At.Local().Format(time.DateTime), decisionLine(d))
		}
	}
	if t.Workflow != nil {
		a.printf(a.out, "\nworkflow %s\n", oneLine(strings.TrimSpace(t.Workflow.ID+"  "+t.Workflow.URL)))
	}
}

// decisionLine reads "pause by li via cli, accepted: … (reason given: …)".
func decisionLine(d audit.Entry) string {
	actor := oneLine(d.Actor)
	if actor == "" {
		actor = "somebody"
	}
	line := fmt.Sprintf("%s by %s via %s, %s: %s", d.Verb, actor, oneLine(d.Via), d.Outcome, oneLine(d.Message))
	if d.Reason != "" {
		line += fmt.Sprintf(" (reason given: %s)", oneLine(d.Reason))
	}
	return line
}

func (a *app) taskDeleteCommand() *cobra.Command {
	return a.deleteCommand(deletion{
		noun: "task", argument: "ID", complete: taskIDs(plan.TaskStopped, plan.TaskSucceeded, plan.TaskFailed, plan.TaskInterrupted),
		long: "Delete tasks that are over, with their records and reports. A task that can still go on is refused: stop it first.",
		call: func(c *cobra.Command, api *client.Client, id string) error {
			return noContent(api.DeleteTask(c.Context(), id))
		},
	})
}
