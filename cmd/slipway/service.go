package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/release/catalog"
)

func (a *app) serviceCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "service",
		Aliases: []string{"services"},
		Short:   "The catalogue: what a plan's serviceId stands for",
	}
	command.AddCommand(a.serviceApplyCommand(), a.serviceListCommand(), a.serviceGetCommand(), a.serviceDeleteCommand())
	return command
}

func (a *app) serviceListCommand() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "list",
		Short: "List the services",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := connect(c)
			if err != nil {
				return err
			}
			services, err := allPages(0, func(limit int, cursor *string) ([]client.ServiceSummary, string, error) {
				page, err := read[client.ServiceList](api.ListServices(c.Context(), &client.ListServicesParams{Limit: &limit, Cursor: cursor}))
				return page.value.Items, page.value.NextCursor, err
			})
			if err != nil {
				return err
			}
			return a.printServices(output, services)
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	return command
}

func (a *app) printServices(output string, services []client.ServiceSummary) error {
	if done, err := a.printObject(output, client.ServiceList{Items: services}); done || err != nil {
		return err
	}
	if len(services) == 0 {
		a.printf(a.err, "The catalogue is empty: fill it with `slipway service apply -f FILE`.\n")
		return nil
	}
	table := newTable("ID", "NAME", "WORKLOADS", "AGE")
	for _, s := range services {
		var workloads []string
		for _, w := range s.Workloads {
			workloads = append(workloads, w.String())
		}
		table.add(s.ID, orDash(s.DisplayName), strings.Join(workloads, ", "), a.age(s.CreatedAt))
	}
	a.printf(a.out, "%s", table)
	return nil
}

func (a *app) serviceGetCommand() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:               "get ID",
		Short:             "Show a service",
		Long:              "Show a service. With -o yaml or json it is the document that `slipway service apply --id ID -f -` takes.",
		Args:              exactName("a service", "ID"),
		ValidArgsFunction: a.complete(serviceIDs),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := connect(c)
			if err != nil {
				return err
			}
			service, err := read[client.Service](api.GetService(c.Context(), args[0]))
			if err != nil {
				return err
			}
			if done, err := a.printObject(output, service.raw); done || err != nil {
				return err
			}
			a.describeService(args[0], service.value)
			return nil
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	return command
}

func (a *app) describeService(id string, s catalog.Service) {
	name := ""
	if s.DisplayName != "" {
		name = ": " + oneLine(s.DisplayName)
	}
	a.printf(a.out, "service %s%s\nan operation on it may take %ds\n\n", id, name, s.Deadline())
	table := newTable("PARTY", "WORKLOAD", "LABELS", "REPLICAS")
	for _, w := range s.Workloads {
		replicas := ""
		if w.Replicas != nil {
			replicas = fmt.Sprint(*w.Replicas)
		}
		table.add(w.PartyOrDefault(), w.WorkloadRef.Kind+" "+w.Namespace+"/"+w.WorkloadRef.Name, orDash(strings.Join(w.Labels, ",")), orDash(replicas))
	}
	a.printf(a.out, "%s", table)
	if s.Package != nil {
		a.printf(a.out, "\ncode packages reach container %s at %s\n", oneLine(s.Package.Container), oneLine(s.Package.MountPath))
	}
	if s.Build != nil {
		a.printf(a.out, "\nbuilt by a Job into %s\n", oneLine(s.Build.Image+s.Build.Package))
	}
}

func (a *app) serviceDeleteCommand() *cobra.Command {
	return a.deleteCommand(deletion{
		noun: "service", argument: "ID", complete: serviceIDs,
		long: "Delete services from the catalogue. Their workloads stay as they are; plans that name them cannot be run until they are back.",
		call: func(c *cobra.Command, api *client.Client, id string) error {
			return noContent(api.DeleteService(c.Context(), id))
		},
	})
}
