// Package plan implements `slipway plan` and `slipway validate`.
package plan

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/manifest"
	"slipway.io/slipway/cli/noun"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/cli/task"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/window"
)

type plans = noun.Noun[client.PlanSummary, client.PlanDocument]

// Command returns `slipway plan`.
func Command(a *app.App) *cobra.Command {
	var names task.Names
	n := &plans{
		App: a, Command: "plan", Name: "plan", Argument: "NAME", Calls: noun.Calls{
			List: apiclient.List((*client.Client).ListPlans), Get: apiclient.Named((*client.Client).GetPlan),
			Put:    apiclient.NamedBody((*client.Client).PutPlanWithBody),
			Delete: apiclient.Named((*client.Client).DeletePlan)},
		Key:    func(p client.PlanSummary) string { return p.Name },
		Note:   func(p client.PlanSummary) string { return p.Comment },
		Titles: []string{"NAME", "ITEMS", "LATEST TASK", "AGE", "COMMENT"},
		Row: func(p client.PlanSummary) []string {
			return []string{p.Name, fmt.Sprint(p.Items), p.Task, a.Age(p.CreatedAt), p.Comment}
		},
		Empty:   "There are no plans. Create one with `slipway plan apply -f FILE`.",
		Prepare: func(ctx context.Context, api *client.Client) { names = task.ReadNames(ctx, api) },
		Describe: func(name string, p client.PlanDocument) error {
			a.Printf(a.Out, "plan %s%s\n%s\n%s", name, render.ReasonSuffix(p.Comment), timesText(p.Times),
				wavesText(wavesOf(p), names))
			return nil
		},
		Encode: plan.Encode, // keeps the documented order of the keys
	}
	apply := n.ApplyCommand(
		`A file contains either the document of one plan, whose name is NAME or taken from the file name (shop.yaml is
plan shop), or one or more DeployPlan objects (apiVersion slipway.io/v1alpha1), separated by "---".

All documents are validated before the first one is sent. Saving a plan does not change any cluster; running it does.`,
		`  slipway plan apply -f shop.yaml
  slipway plan apply -f - shop < plan.yaml`, manifest.Applier{
			Kind: manifest.KindPlan, NameFlag: "NAME", ValidName: catalog.ValidID,
			Check: func(body []byte) strictyaml.Errors {
				_, _, errors := plan.Decode(body)
				return errors
			},
		})
	command := &cobra.Command{Use: n.Command, Aliases: []string{"plans"}, Short: "Manage and run plans"}
	command.AddCommand(apply, n.ListCommand("List the plans", nil), n.GetCommand("Show the waves of a plan",
		"Show the waves of a plan. With -o yaml or json, print the document that `slipway plan apply -f - NAME` accepts."),
		runCommand(n), diffCommand(n), historyCommand(n), n.DeleteCommand("Delete plans. Their past tasks are kept. A "+
			"plan with a running task cannot be deleted: stop the task first."))
	return command
}

// timesText returns the times of a plan, one per line; "" if it has none.
func timesText(times window.Times) string {
	var text strings.Builder
	if times.NotBefore != "" {
		fmt.Fprintf(&text, "not before %s\n", render.OneLine(times.NotBefore))
	}
	for _, w := range times.Windows {
		fmt.Fprintf(&text, "within a window %s\n", render.OneLine(w.String()))
	}
	for _, w := range times.Freezes {
		fmt.Fprintf(&text, "outside a freeze %s\n", render.OneLine(w.String()))
	}
	return text.String()
}

func wavesOf(d plan.Document) []client.Wave {
	var waves []client.Wave
	for _, w := range d.Waves() {
		wave := client.Wave{Priority: w.Priority}
		for _, n := range w.Items {
			item := d.Items[n]
			wave.Items = append(wave.Items, client.WaveItem{Item: n + 1, ServiceID: string(item.ServiceID),
				Deployment: item.Deployment, ContainerExecMethod: item.MethodOrDefault()})
		}
		waves = append(waves, wave)
	}
	return waves
}

func wavesText(waves []client.Wave, names task.Names) string {
	var columns render.Columns
	for _, w := range waves {
		for _, item := range w.Items {
			columns.Widen(names.WithName(item.ServiceID))
		}
	}
	var text strings.Builder
	for n, w := range waves {
		fmt.Fprintf(&text, "wave %d of %d, priority %d\n", n+1, len(waves), w.Priority)
		for _, item := range w.Items {
			operation := fmt.Sprintf("%s   (item %d)", task.Operation(item.Deployment, item.ContainerExecMethod),
				item.Item)
			text.WriteString(columns.Text("  ", names.WithName(item.ServiceID), operation) + "\n")
		}
	}
	return text.String()
}

func runCommand(n *plans) *cobra.Command {
	var who app.ActorFlags
	var options follow.Options
	var times task.TimesFlags
	command := &cobra.Command{
		Use:     "run NAME",
		Aliases: []string{"execute"},
		Short:   "Run a plan by starting a task",
		Long: `Run a plan by starting a task. The task uses the plan and the catalogue entries as they are now. The engine
first validates everything against the catalogue and the clusters; if anything is invalid, it reports all errors and
changes nothing.

With --watch, the command watches the task until it ends, and the exit code is the outcome:

` + task.WatchExitCodes + `

--key makes retries safe: for 30 days, runs with the same key are the same task.

--not-before and --times restrict when services may start, in addition to the times of the plan. The file contains the
plan's keys notBefore, windows and freezes. A waiting task shows when it will continue; ` + "`slipway task approve`" +
			` with a reason makes it start immediately.`,
		Example: `  slipway plan run shop --reason "release 2.4" --watch
  slipway plan run shop --key "$CI_PIPELINE_ID" --watch --timeout 30m
  slipway plan run shop --not-before 2026-12-01T06:00:00+01:00`,
	}
	n.InitCommand(command, n.App.ConnectToWrite, func() error { return errors.Join(options.Check(command), times.Read()) },
		func(c *cobra.Command, api *client.Client, name string) error {
			return task.RunPlan(name, times).Run(c.Context(), n.App, api, who, options)
		})
	who.Flags(command, "idempotency `key`, unique to this run, such as a CI pipeline ID")
	options.StartFlags(command, task.WatchHelp)
	times.Register(command)
	return command
}

func historyCommand(n *plans) *cobra.Command {
	command := noun.HistoryCommand(n, "tasks", func(name string) apiclient.Request {
		return apiclient.Request{Call: task.ListCall, Query: url.Values{"plan": {name}}}
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
	return n.InitCommand(command, app.Connect, nil, func(c *cobra.Command, api *client.Client, name string) error {
		answer, err := apiclient.Read[client.PlanDiff](api.DiffPlan(c.Context(), name))
		if err != nil {
			return err
		}
		return n.App.Print(answer.Raw, func() {
			for _, warning := range answer.Value.Warnings {
				n.App.Printf(n.App.Err, "warning: %s\n", render.OneLine(warning.Reason))
			}
			n.App.Printf(n.App.Out, "%s", diffText(answer.Value, task.ReadNames(c.Context(), api)))
		})
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
