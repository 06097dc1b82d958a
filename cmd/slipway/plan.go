package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/release/plan"
)

func (a *app) planCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "plan",
		Aliases: []string{"plans"},
		Short:   "Plans: what to release, in which order",
	}
	command.AddCommand(a.planApplyCommand(), a.planListCommand(), a.planGetCommand(), a.planRunCommand(), a.planDeleteCommand())
	return command
}

func (a *app) planListCommand() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "list",
		Short: "List the plans",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := connect(c)
			if err != nil {
				return err
			}
			plans, err := allPages(0, func(limit int, cursor *string) ([]client.PlanSummary, string, error) {
				page, err := read[client.PlanList](api.ListPlans(c.Context(), &client.ListPlansParams{Limit: &limit, Cursor: cursor}))
				return page.value.Items, page.value.NextCursor, err
			})
			if err != nil {
				return err
			}
			return a.printPlans(output, plans)
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	return command
}

func (a *app) printPlans(output string, plans []client.PlanSummary) error {
	if done, err := a.printObject(output, client.PlanList{Items: plans}); done || err != nil {
		return err
	}
	if len(plans) == 0 {
		a.printf(a.err, "There are no plans: save one with `slipway plan apply -f FILE`.\n")
		return nil
	}
	table := newTable("NAME", "ITEMS", "NEWEST TASK", "AGE", "COMMENT")
	for _, p := range plans {
		table.add(p.Name, fmt.Sprint(p.Items), orDash(p.Task), a.age(p.CreatedAt), p.Comment)
	}
	a.printf(a.out, "%s", table)
	return nil
}

func (a *app) planGetCommand() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:               "get NAME",
		Short:             "Show a plan by its waves",
		Long:              "Show a plan by its waves. With -o yaml or json it is the document that `slipway plan apply -f - NAME` takes.",
		Args:              exactName("a plan", "NAME"),
		ValidArgsFunction: a.complete(planNames),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := connect(c)
			if err != nil {
				return err
			}
			answer, err := read[client.PlanDocument](api.GetPlan(c.Context(), args[0]))
			if err != nil {
				return err
			}
			if output == outputYAML {
				// Encode keeps the order of the keys, which people know from the documentation.
				text, err := plan.Encode(answer.value)
				a.printf(a.out, "%s", text)
				return err
			}
			if done, err := a.printObject(output, answer.raw); done || err != nil {
				return err
			}
			a.printf(a.out, "plan %s%s\n\n%s", args[0], commented(answer.value.Comment), planTree(wavesOf(answer.value)))
			return nil
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	return command
}

// commented is a comment as it follows a name.
func commented(comment string) string {
	if comment = oneLine(comment); comment == "" {
		return ""
	}
	return ": " + comment
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

// planTree draws the waves of a plan that does not run.
func planTree(waves []client.Wave) string {
	width := 0
	for _, w := range waves {
		for _, item := range w.Items {
			width = max(width, displayWidth(oneLine(item.ServiceID)))
		}
	}
	var text strings.Builder
	for n, w := range waves {
		fmt.Fprintf(&text, "wave %d of %d, priority %d\n", n+1, len(waves), w.Priority)
		for _, item := range w.Items {
			fmt.Fprintf(&text, "  %s   %s   (item %d)\n", padded(oneLine(item.ServiceID), width), operation(item.Deployment, item.ContainerExecMethod), item.Item)
		}
	}
	return text.String()
}

// operation names what is done, and how where that is not the default.
func operation(deployment plan.Operation, method plan.Method) string {
	if method == plan.Sequential {
		return string(deployment) + " one by one"
	}
	return string(deployment)
}

func (a *app) planDeleteCommand() *cobra.Command {
	return a.deleteCommand(deletion{
		noun: "plan", argument: "NAME", complete: planNames,
		long: "Delete plans. Their past tasks are kept. A plan whose task is under way cannot be deleted: stop the task first.",
		call: func(c *cobra.Command, api *client.Client, name string) error {
			return noContent(api.DeletePlan(c.Context(), name))
		},
	})
}
