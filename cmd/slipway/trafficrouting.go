package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
)

func (a *app) trafficRoutingCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "trafficrouting",
		Aliases: []string{"trafficroutings", "tr"},
		Short:   "Traffic routings: routes that several rollouts share",
	}
	command.AddCommand(a.trafficRoutingApplyCommand(), a.trafficRoutingListCommand(), a.trafficRoutingGetCommand(), a.trafficRoutingDeleteCommand())
	return command
}

func (a *app) trafficRoutingListCommand() *cobra.Command {
	var output string
	var where place
	command := &cobra.Command{
		Use:   "list",
		Short: "List the traffic routings, with who holds them",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := connect(c)
			if err != nil {
				return err
			}
			return a.listTrafficRoutings(c.Context(), api, where, output)
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	where.namespaceFlag(command)
	command.Flag("namespace").Usage = "only traffic routings of this `namespace`"
	return command
}

// trafficRoutings reads the traffic routings of a namespace, of all without one.
func trafficRoutings(ctx context.Context, api *client.Client, where place) ([]client.TrafficRouting, error) {
	return allPages(0, func(limit int, cursor *string) ([]client.TrafficRouting, string, error) {
		params := &client.ListTrafficRoutingsParams{Limit: &limit, Cursor: cursor}
		if where.namespace != "" {
			params.Namespace = &where.namespace
		}
		page, err := read[client.TrafficRoutingList](api.ListTrafficRoutings(ctx, params))
		return page.value.Items, page.value.NextCursor, err
	})
}

func (a *app) listTrafficRoutings(ctx context.Context, api *client.Client, where place, output string) error {
	all, err := trafficRoutings(ctx, api, where)
	if err != nil {
		return err
	}
	if done, err := a.printObject(output, client.TrafficRoutingList{Items: all}); done || err != nil {
		return err
	}
	if len(all) == 0 {
		a.printf(a.err, "There are no traffic routings: save one with `slipway trafficrouting apply -f FILE`.\n")
		return nil
	}
	table := newTable("NAME", "PHASE", "HELD BY", "AGE")
	for _, t := range all {
		table.add(t.Namespace+"/"+t.Name, string(t.Status.Phase), orDash(strings.Join(t.Status.Holders, ", ")), a.age(t.CreatedAt))
	}
	a.printf(a.out, "%s", table)
	return nil
}

func (a *app) trafficRoutingGetCommand() *cobra.Command {
	var output string
	var where place
	command := &cobra.Command{
		Use:               "get NAME",
		Short:             "Show a traffic routing, and who holds it",
		Args:              oneName("a traffic routing"),
		ValidArgsFunction: a.complete(trafficRoutingNames(&where)),
		RunE: func(c *cobra.Command, args []string) error {
			name, err := where.named(args[0])
			if err != nil {
				return err
			}
			api, err := connect(c)
			if err != nil {
				return err
			}
			answer, err := read[client.TrafficRouting](api.GetTrafficRouting(c.Context(), name.namespace, name.name))
			if err != nil {
				return err
			}
			if done, err := a.printObject(output, answer.raw); done || err != nil {
				return err
			}
			t := answer.value
			a.printf(a.out, "traffic routing %s is %s%s\n", name, t.Status.Phase, because(t.Status.Message))
			for _, holder := range t.Status.Holders {
				a.printf(a.out, "held by %s\n", oneLine(holder))
			}
			a.printf(a.out, "\n")
			_, err = a.printObject(outputYAML, t.Spec)
			return err
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	where.namespaceFlag(command)
	return command
}

// trafficRoutingNames completes NAME where the namespace is given, NAMESPACE/NAME otherwise.
func trafficRoutingNames(where *place) lister {
	return func(ctx context.Context, api *client.Client) ([]string, error) {
		all, err := trafficRoutings(ctx, api, *where)
		var entries []string
		for _, t := range all {
			name := t.Namespace + "/" + t.Name
			if where.namespace != "" {
				name = t.Name
			}
			entries = append(entries, name+"\t"+string(t.Status.Phase))
		}
		return entries, err
	}
}

func (a *app) trafficRoutingDeleteCommand() *cobra.Command {
	var output string
	var where place
	command := &cobra.Command{
		Use:               "delete NAME...",
		Short:             "Delete traffic routings",
		Long:              "Delete traffic routings. One that a rollout holds is refused: its routes would have nobody to give them back.",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeAll(trafficRoutingNames(&where)),
		RunE: func(c *cobra.Command, args []string) error {
			for _, argument := range args {
				if _, err := where.named(argument); err != nil {
					return err
				}
			}
			api, err := a.connectToWrite(c)
			if err != nil {
				return err
			}
			return a.deleteAll(c, api, deletion{noun: "traffic routing", call: func(c *cobra.Command, api *client.Client, argument string) error {
				name, err := where.named(argument)
				if err != nil {
					return err
				}
				return noContent(api.DeleteTrafficRouting(c.Context(), name.namespace, name.name))
			}}, args, output)
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	where.namespaceFlag(command)
	return command
}

func (a *app) trafficRoutingApplyCommand() *cobra.Command {
	var files []string
	var output string
	var where place
	command := &cobra.Command{
		Use:     "apply -f FILE [NAME]",
		Aliases: []string{"put"},
		Short:   "Create or replace traffic routings",
		Long: `Create or replace traffic routings. A file holds TrafficRouting documents (rollouts.kruise.io/v1alpha1) separated by "---", or one
spec alone, which is called NAME. -n says the namespace where a document does not.`,
		Example: `  slipway trafficrouting apply -f mse-traffic.yaml -n shop`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			documents, err := a.readTrafficRoutings(files, where, strings.Join(args, ""))
			if err != nil {
				return err
			}
			api, err := a.connectToWrite(c)
			if err != nil {
				return err
			}
			return a.sendAll(c, api, application{noun: "traffic routing", put: putTrafficRouting}, documents, output)
		},
	}
	clientFlags(command)
	fileFlag(command, &files)
	outputFlag(command, &output)
	where.namespaceFlag(command)
	return command
}

// readTrafficRoutings reads the documents; each is called NAMESPACE/NAME.
func (a *app) readTrafficRoutings(files []string, where place, argument string) ([]document, error) {
	var documents []document
	for _, file := range files {
		text, shown, err := a.readFile(file)
		if err != nil {
			return nil, err
		}
		for _, part := range splitDocuments(text) {
			d, err := readTrafficRouting(shown, part, where, argument)
			if err != nil {
				return nil, err
			}
			documents = append(documents, d)
		}
	}
	switch {
	case len(documents) == 0:
		return nil, fmt.Errorf("there is no document in %s", strings.Join(files, ", "))
	case argument != "" && len(documents) > 1:
		return nil, usagef("NAME names one traffic routing, and there are %d documents: write whole objects with metadata.name", len(documents))
	}
	return documents, nil
}
