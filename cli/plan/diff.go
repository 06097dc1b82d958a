package plan

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/noun"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/cli/task"
	"slipway.io/slipway/release/phrase"
)

func historyCommand(n *plans) *cobra.Command {
	command := noun.HistoryCommand(n, "tasks", func(name string) apiclient.Request {
		return apiclient.Request{Path: "tasks", Query: url.Values{"plan": {name}}}
	}, task.HistoryTitles, func(t client.TaskSummary) []string { return task.HistoryRow(n.App, t) })
	command.Short = "List the tasks of a plan, newest first"
	command.Long =
		`List the running and past tasks of a plan, newest first. DONE and FAILED count services. FROM is the task that this
one reran (slipway task rerun) or reversed (slipway task reverse).`
	command.Example = `  slipway plan history shop --limit 5`
	return command
}

func diffCommand(n *plans) *cobra.Command {
	command := &cobra.Command{
		Use: "diff NAME", Short: "Show what running a plan would change",
		Long: `Show what running a plan would change, per workload: replica counts, replaced pods and changed fields of the
pod template. The worker of each party calculates the changes from the live workloads and validates them with a dry run
in the API server. Nothing is changed. If a run would be rejected, the diff is rejected too.

Each item is compared with the current state, as if earlier items had not run. Possibly secret values, such as
environment variables, are hidden.`,
		Example: `  slipway plan diff shop`,
	}
	return n.InitReadCommand(command, nil, func(c *cobra.Command, api *client.Client, name string) error {
		answer, err := apiclient.Read[client.PlanDiff](api.DiffPlan(c.Context(), name))
		if err != nil {
			return err
		}
		if done, err := n.App.PrintObject(answer.Raw); done || err != nil {
			return err
		}
		for _, warning := range answer.Value.Warnings {
			n.App.Printf(n.App.Err, "warning: %s\n", render.OneLine(warning.Reason))
		}
		n.App.Printf(n.App.Out, "%s", diffText(answer.Value, task.ReadNames(c.Context(), api)))
		return nil
	})
}

func diffText(diff client.PlanDiff, names task.Names) string {
	var text strings.Builder
	changed, all := 0, 0
	for _, item := range diff.Items {
		fmt.Fprintf(&text, "item %d: %s %s", item.Item, names.WithName(item.ServiceID),
			task.Operation(item.Deployment, item.ContainerExecMethod))
		if item.Source != "" {
			fmt.Fprintf(&text, " %s", render.OneLine(item.Source))
		}
		if item.Steps > 0 {
			fmt.Fprintf(&text, ", by rollouts with %s", phrase.Count(item.Steps, "step"))
		}
		text.WriteString("\n")
		for _, w := range item.Workloads {
			all++
			if w.Changes {
				changed++
			}
			writeDiff(&text, w)
		}
	}
	fmt.Fprintf(&text, "%d of %s would change\n", changed, phrase.Count(all, "workload"))
	return text.String()
}

func writeDiff(text *strings.Builder, w client.WorkloadDiff) {
	mark := " "
	if w.Changes {
		mark = "~"
	}
	place := w.Kind + " " + w.Namespace + "/" + w.Name
	if w.Party != "default" {
		place = w.Party + ": " + place
	}
	fmt.Fprintf(text, "  %s %s: %s\n", mark, place, render.OneLine(w.Summary))
	if w.FromReplicas != nil && w.ToReplicas != nil && *w.FromReplicas != *w.ToReplicas {
		fmt.Fprintf(text, "      replicas: %d → %d\n", *w.FromReplicas, *w.ToReplicas)
	}
	if w.Pods > 0 {
		fmt.Fprintf(text, "      replaces %s\n", phrase.Count(int(w.Pods), "pod"))
	}
	for _, field := range w.Template {
		text.WriteString("      " + fieldText(field) + "\n")
	}
	if w.Unknown != "" {
		fmt.Fprintf(text, "      unknown: %s\n", render.OneLine(w.Unknown))
	}
}

// fieldText returns one changed field: "~ a: 1 → 2", "+ a: 2" or "- a: 1".
func fieldText(f client.FieldChange) string {
	from, to := render.OneLine(f.From), render.OneLine(f.To)
	switch {
	case f.Hidden:
		return "~ " + f.Field + " (value not shown)"
	case from == "" && to == "":
		return "~ " + f.Field
	case from == "":
		return "+ " + f.Field + ": " + to
	case to == "":
		return "- " + f.Field + ": " + from
	}
	return "~ " + f.Field + ": " + from + " → " + to
}
