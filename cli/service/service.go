// Package service implements `slipway service`, the catalogue of services.
package service

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/manifest"
	"slipway.io/slipway/cli/noun"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/strictyaml"
)

// Command returns `slipway service`.
func Command(a *app.App) *cobra.Command {
	n := services(a)
	get := n.GetCommand("Show a service")
	get.Long = "Show a service. With -o yaml or json, print the document that `slipway service apply --id ID -f -` " +
		"accepts."
	command := &cobra.Command{Use: n.Command, Aliases: []string{"services"}, Short: "Manage the catalogue of services"}
	command.AddCommand(applyCommand(n), n.ListCommand("List the services", noun.ListOptions{}), get, n.DeleteCommand(
		"Delete services from the catalogue. Their workloads are not changed. A service that a plan uses is not "+
			"deleted; the "+
			"error names the plans."))
	return command
}

func services(a *app.App) *noun.Noun[client.ServiceSummary, client.Service] {
	return &noun.Noun[client.ServiceSummary, client.Service]{
		App: a, Command: "service", Name: "service", Argument: "ID", Collection: "services",
		Key:    func(s client.ServiceSummary) string { return s.ID },
		Note:   func(s client.ServiceSummary) string { return s.DisplayName },
		Titles: []string{"ID", "NAME", "WORKLOADS", "AGE"},
		Row: func(s client.ServiceSummary) []string {
			var workloads []string
			for _, w := range s.Workloads {
				workloads = append(workloads, w.String())
			}
			return []string{s.ID, s.DisplayName, strings.Join(workloads, ", "), a.Age(s.CreatedAt)}
		},
		Empty:    "The catalogue is empty. Add services with `slipway service apply -f FILE`.",
		Describe: func(id string, s client.Service) error { return describe(a, id, s) },
	}
}

func describe(a *app.App, id string, s catalog.Service) error {
	a.Printf(a.Out, "service %s%s\ntimeout of operations: %ds\n\n", id, render.ReasonSuffix(s.DisplayName),
		s.Deadline())
	table := render.NewTable("PARTY", "WORKLOAD", "LABELS", "REPLICAS")
	for _, w := range s.Workloads {
		replicas := ""
		if w.Replicas != nil {
			replicas = fmt.Sprint(*w.Replicas)
		}
		table.Add(w.PartyOrDefault(), w.WorkloadRef.Kind+" "+w.Namespace+"/"+w.WorkloadRef.Name,
			strings.Join(w.Labels, ","), replicas)
	}
	a.Printf(a.Out, "%s", table)
	if s.Package != nil {
		how := "unpacked"
		if !s.Package.Unpacked() {
			how = "kept as one file"
		}
		a.Printf(a.Out, "\ncode packages are %s in container %s at %s\n", how, render.OneLine(s.Package.Container),
			render.OneLine(s.Package.MountPath))
	}
	if s.Build != nil {
		a.Printf(a.Out, "\nbuilt by a Job into %s\n", render.OneLine(s.Build.Image+s.Build.Package))
	}
	return nil
}

func applyCommand(n *noun.Noun[client.ServiceSummary, client.Service]) *cobra.Command {
	return n.ApplyCommand(
		`A file contains either the document of one service, whose ID is set by --id or taken from the file name (111.yaml is
service 111), or one or more ReleaseService objects (apiVersion slipway.io/v1alpha1), separated by "---".

All documents are validated before the first one is sent.`, `  slipway service apply -f 111.yaml
  slipway service apply -f services.yaml -f more-services.yaml
  slipway service apply --id 111 -f - < order.yaml`, manifest.Applier{
			Kind: manifest.KindService, NameFlag: "--id", ValidName: catalog.ValidID,
			Check: func(body []byte) strictyaml.Errors {
				_, errors := strategy.DecodeService(body)
				return errors
			},
		})
}
