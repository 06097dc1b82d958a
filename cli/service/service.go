// Package service holds the commands on the catalogue of services.
package service

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/catalog"
)

// Command is `slipway service`.
func Command(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:     "service",
		Aliases: []string{"services"},
		Short:   "The catalogue: what a plan's serviceId stands for",
	}
	command.AddCommand(applyCommand(a), listCommand(a), getCommand(a), deleteCommand(a))
	return command
}

func listCommand(a *app.App) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "list",
		Short: "List the services",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := app.Connect(c)
			if err != nil {
				return err
			}
			services, err := apiclient.AllPages(0, func(limit int, cursor *string) ([]client.ServiceSummary, string, error) {
				page, err := apiclient.Read[client.ServiceList](api.ListServices(c.Context(), &client.ListServicesParams{Limit: &limit, Cursor: cursor}))
				return page.Value.Items, page.Value.NextCursor, err
			})
			if err != nil {
				return err
			}
			return printList(a, output, services)
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	return command
}

func printList(a *app.App, output string, services []client.ServiceSummary) error {
	if done, err := a.PrintObject(output, client.ServiceList{Items: services}); done || err != nil {
		return err
	}
	if len(services) == 0 {
		a.Printf(a.Err, "The catalogue is empty: fill it with `slipway service apply -f FILE`.\n")
		return nil
	}
	table := render.NewTable("ID", "NAME", "WORKLOADS", "AGE")
	for _, s := range services {
		var workloads []string
		for _, w := range s.Workloads {
			workloads = append(workloads, w.String())
		}
		table.Add(s.ID, render.OrDash(s.DisplayName), strings.Join(workloads, ", "), a.Age(s.CreatedAt))
	}
	a.Printf(a.Out, "%s", table)
	return nil
}

func getCommand(a *app.App) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:               "get ID",
		Short:             "Show a service",
		Long:              "Show a service. With -o yaml or json it is the document that `slipway service apply --id ID -f -` takes.",
		Args:              app.ExactName("a service", "ID"),
		ValidArgsFunction: a.Complete(app.ServiceIDs),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := app.Connect(c)
			if err != nil {
				return err
			}
			service, err := apiclient.Read[client.Service](api.GetService(c.Context(), args[0]))
			if err != nil {
				return err
			}
			if done, err := a.PrintObject(output, service.Raw); done || err != nil {
				return err
			}
			describe(a, args[0], service.Value)
			return nil
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	return command
}

func describe(a *app.App, id string, s catalog.Service) {
	name := ""
	if s.DisplayName != "" {
		name = ": " + render.OneLine(s.DisplayName)
	}
	a.Printf(a.Out, "service %s%s\nan operation on it may take %ds\n\n", id, name, s.Deadline())
	table := render.NewTable("PARTY", "WORKLOAD", "LABELS", "REPLICAS")
	for _, w := range s.Workloads {
		replicas := ""
		if w.Replicas != nil {
			replicas = fmt.Sprint(*w.Replicas)
		}
		table.Add(w.PartyOrDefault(), w.WorkloadRef.Kind+" "+w.Namespace+"/"+w.WorkloadRef.Name, render.OrDash(strings.Join(w.Labels, ",")), render.OrDash(replicas))
	}
	a.Printf(a.Out, "%s", table)
	if s.Package != nil {
		a.Printf(a.Out, "\ncode packages reach container %s at %s\n", render.OneLine(s.Package.Container), render.OneLine(s.Package.MountPath))
	}
	if s.Build != nil {
		a.Printf(a.Out, "\nbuilt by a Job into %s\n", render.OneLine(s.Build.Image+s.Build.Package))
	}
}

func deleteCommand(a *app.App) *cobra.Command {
	return a.DeleteCommand(app.Deletion{
		Noun: "service", Argument: "ID", Complete: app.ServiceIDs,
		Long: "Delete services from the catalogue. Their workloads stay as they are; plans that name them cannot be run until they are back.",
		Call: func(c *cobra.Command, api *client.Client, id string) error {
			return apiclient.NoContent(api.DeleteService(c.Context(), id))
		},
	})
}
