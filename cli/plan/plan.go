// Package plan holds the commands on deployment plans: apply, validate, run.
package plan

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/cli/task"
	"slipway.io/slipway/release/plan"
)

// Command is `slipway plan`.
func Command(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:     "plan",
		Aliases: []string{"plans"},
		Short:   "Plans: what to release, in which order",
	}
	command.AddCommand(applyCommand(a), listCommand(a), getCommand(a), runCommand(a), deleteCommand(a))
	return command
}

func listCommand(a *app.App) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "list",
		Short: "List the plans",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := app.Connect(c)
			if err != nil {
				return err
			}
			plans, err := apiclient.AllPages(0, func(limit int, cursor *string) ([]client.PlanSummary, string, error) {
				page, err := apiclient.Read[client.PlanList](api.ListPlans(c.Context(), &client.ListPlansParams{Limit: &limit, Cursor: cursor}))
				return page.Value.Items, page.Value.NextCursor, err
			})
			if err != nil {
				return err
			}
			return printPlans(a, output, plans)
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	return command
}

func printPlans(a *app.App, output string, plans []client.PlanSummary) error {
	if done, err := a.PrintObject(output, client.PlanList{Items: plans}); done || err != nil {
		return err
	}
	if len(plans) == 0 {
		a.Printf(a.Err, "There are no plans: save one with `slipway plan apply -f FILE`.\n")
		return nil
	}
	table := render.NewTable("NAME", "ITEMS", "NEWEST TASK", "AGE", "COMMENT")
	for _, p := range plans {
		table.Add(p.Name, fmt.Sprint(p.Items), render.OrDash(p.Task), a.Age(p.CreatedAt), p.Comment)
	}
	a.Printf(a.Out, "%s", table)
	return nil
}

func getCommand(a *app.App) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:               "get NAME",
		Short:             "Show a plan by its waves",
		Long:              "Show a plan by its waves. With -o yaml or json it is the document that `slipway plan apply -f - NAME` takes.",
		Args:              app.ExactName("a plan", "NAME"),
		ValidArgsFunction: a.Complete(app.PlanNames),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := app.Connect(c)
			if err != nil {
				return err
			}
			answer, err := apiclient.Read[client.PlanDocument](api.GetPlan(c.Context(), args[0]))
			if err != nil {
				return err
			}
			if output == app.YAML {
				// Encode keeps the order of the keys, which people know from the documentation.
				text, err := plan.Encode(answer.Value)
				a.Printf(a.Out, "%s", text)
				return err
			}
			if done, err := a.PrintObject(output, answer.Raw); done || err != nil {
				return err
			}
			a.Printf(a.Out, "plan %s%s\n\n%s", args[0], render.Commented(answer.Value.Comment), tree(wavesOf(answer.Value)))
			return nil
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	return command
}

// wavesOf are a document's waves in the form in which the API answers them.
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

// tree draws the waves of a plan that does not run.
func tree(waves []client.Wave) string {
	width := 0
	for _, w := range waves {
		for _, item := range w.Items {
			width = max(width, render.DisplayWidth(render.OneLine(item.ServiceID)))
		}
	}
	var text strings.Builder
	for n, w := range waves {
		fmt.Fprintf(&text, "wave %d of %d, priority %d\n", n+1, len(waves), w.Priority)
		for _, item := range w.Items {
			fmt.Fprintf(&text, "  %s   %s   (item %d)\n", render.Padded(render.OneLine(item.ServiceID), width), task.Operation(item.Deployment, item.ContainerExecMethod), item.Item)
		}
	}
	return text.String()
}

func deleteCommand(a *app.App) *cobra.Command {
	return a.DeleteCommand(app.Deletion{
		Noun: "plan", Argument: "NAME", Complete: app.PlanNames,
		Long: "Delete plans. Their past tasks are kept. A plan whose task is under way cannot be deleted: stop the task first.",
		Call: func(c *cobra.Command, api *client.Client, name string) error {
			return apiclient.NoContent(api.DeletePlan(c.Context(), name))
		},
	})
}
