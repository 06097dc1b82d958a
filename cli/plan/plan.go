// Package plan holds the commands on deployment plans: apply, validate, run.
package plan

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/strictyaml"
)

type plans = noun.Noun[client.PlanSummary, client.PlanDocument]

// Command is `slipway plan`.
func Command(a *app.App) *cobra.Command {
	var names task.Names
	n := &plans{
		App: a, Command: "plan", Name: "plan", Argument: "NAME",
		Page:   task.PageOfPlans,
		Key:    func(p client.PlanSummary) string { return p.Name },
		Note:   func(p client.PlanSummary) string { return p.Comment },
		Titles: []string{"NAME", "ITEMS", "NEWEST TASK", "AGE", "COMMENT"},
		Row: func(p client.PlanSummary) []string {
			return []string{p.Name, fmt.Sprint(p.Items), p.Task, a.Age(p.CreatedAt), p.Comment}
		},
		Empty: "There are no plans: save one with `slipway plan apply -f FILE`.",
		Read: func(ctx context.Context, api *client.Client, name string) (apiclient.Reply[client.PlanDocument], error) {
			answer, err := apiclient.Read[client.PlanDocument](api.GetPlan(ctx, name))
			if a.Output == app.Table && err == nil {
				names = task.ReadNames(ctx, api)
			}
			return answer, err
		},
		Describe: func(_ *app.App, name string, p client.PlanDocument) error {
			a.Printf(a.Out, "plan %s%s\n%s\n%s", name, render.Because(p.Comment), timesText(p.Times), tree(wavesOf(p), names))
			return nil
		},
		Encode: plan.Encode, // keeps the order of the keys, which people know from the documentation
		Delete: func(ctx context.Context, api *client.Client, name string) error {
			return apiclient.NoContent(api.DeletePlan(ctx, name))
		},
	}
	get := n.GetCommand("Show a plan by its waves")
	get.Long = "Show a plan by its waves. With -o yaml or json it is the document that `slipway plan apply -f - NAME` takes."
	command := &cobra.Command{Use: n.Command, Aliases: []string{"plans"}, Short: "Plans: what to release, in which order"}
	command.AddCommand(applyCommand(n), n.ListCommand("List the plans", noun.ListOptions{}), get, runCommand(n), diffCommand(n), historyCommand(n), n.DeleteCommand(
		"Delete plans. Their past tasks are kept. A plan whose task is under way cannot be deleted: stop the task first."))
	return command
}

func applyCommand(n *plans) *cobra.Command {
	return n.ApplyCommand(`A file holds either one plan's document, which is called NAME or else after the file
(shop.yaml is plan shop), or any number of DeployPlan objects (apiVersion slipway.io/v1alpha1), separated by "---".

Every document is checked before the first one is sent. Saving a plan changes nothing in any cluster; running it does.`,
		`  slipway plan apply -f shop.yaml
  slipway plan apply -f - shop < plan.yaml`, manifest.Application{
			Kind: manifest.KindPlan, NameFlag: "NAME", ValidName: catalog.ValidID,
			Check: func(body []byte) strictyaml.Errors {
				_, _, errors := plan.Decode(body)
				return errors
			},
			Put: func(ctx context.Context, api *client.Client, d manifest.Document) (manifest.Applied, error) {
				return manifest.Answered(api.PutPlanWithBody(ctx, d.Name, apiclient.YAMLBody, bytes.NewReader(d.Body)))
			},
		})
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

func tree(waves []client.Wave, names task.Names) string {
	var columns render.Columns
	for _, w := range waves {
		for _, item := range w.Items {
			columns.Widen(names.Beside(item.ServiceID))
		}
	}
	var text strings.Builder
	for n, w := range waves {
		fmt.Fprintf(&text, "wave %d of %d, priority %d\n", n+1, len(waves), w.Priority)
		for _, item := range w.Items {
			operation := fmt.Sprintf("%s   (item %d)", task.Operation(item.Deployment, item.ContainerExecMethod), item.Item)
			text.WriteString(columns.Text("  ", names.Beside(item.ServiceID), operation) + "\n")
		}
	}
	return text.String()
}

func runCommand(n *plans) *cobra.Command {
	a := n.App
	var who app.Who
	var options follow.Options
	var times task.TimesFlags
	command := &cobra.Command{
		Use:     "run NAME",
		Aliases: []string{"execute"},
		Short:   "Run a plan: start a task",
		Long: `Run a plan: start a task that carries out the plan and the catalogue entries as they are now. Everything is checked first,
in the catalogue and in the clusters; what cannot be done is refused with every reason, and nothing is changed.

With --watch the task is followed to its end, and the exit code says how it ended:

` + task.WatchExitCodes + `

--key makes a repeat safe: for 30 days the same key is the same task.

--not-before and --times say when its services may begin, beside what the plan itself says. The file has the keys notBefore, windows and
freezes of a plan. A task that waits shows until when; ` + "`slipway task approve`" + ` with a reason lets it begin at once.`,
		Example: `  slipway plan run shop --reason "release 2.4" --watch
  slipway plan run shop --key "$CI_PIPELINE_ID" --watch --timeout 30m
  slipway plan run shop --not-before 2026-12-01T06:00:00+01:00`,
		Args:              app.ExactName("a plan", "NAME"),
		ValidArgsFunction: a.Complete(n.Completion),
	}
	a.Writing(command, func([]string) error { return errors.Join(options.Check(command), times.Read()) },
		func(c *cobra.Command, api *client.Client, args []string) error {
			return task.RunPlan(args[0], times).Run(c.Context(), a, api, who, options)
		})
	who.Flags(command, "any `text` that is unique to this run, such as a pipeline's number")
	options.StartFlags(command, task.Words)
	times.Register(command)
	return command
}
