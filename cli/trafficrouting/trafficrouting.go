// Package trafficrouting holds the commands on routes that several rollouts share.
package trafficrouting

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/manifest"
	"slipway.io/slipway/cli/render"
)

// Command is `slipway trafficrouting`.
func Command(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:     "trafficrouting",
		Aliases: []string{"trafficroutings", "tr"},
		Short:   "Traffic routings: routes that several rollouts share",
	}
	command.AddCommand(applyCommand(a), listCommand(a), getCommand(a), deleteCommand(a))
	return command
}

func listCommand(a *app.App) *cobra.Command {
	var output string
	var where app.Place
	command := &cobra.Command{
		Use:   "list",
		Short: "List the traffic routings, with who holds them",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := app.Connect(c)
			if err != nil {
				return err
			}
			return list(c.Context(), a, api, where, output)
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	where.NamespaceFlag(command)
	command.Flag("namespace").Usage = "only traffic routings of this `namespace`"
	return command
}

// listAll reads the traffic routings of a namespace, of all without one.
func listAll(ctx context.Context, api *client.Client, where app.Place) ([]client.TrafficRouting, error) {
	return apiclient.AllPages(0, func(limit int, cursor *string) ([]client.TrafficRouting, string, error) {
		params := &client.ListTrafficRoutingsParams{Limit: &limit, Cursor: cursor}
		if where.Namespace != "" {
			params.Namespace = &where.Namespace
		}
		page, err := apiclient.Read[client.TrafficRoutingList](api.ListTrafficRoutings(ctx, params))
		return page.Value.Items, page.Value.NextCursor, err
	})
}

func list(ctx context.Context, a *app.App, api *client.Client, where app.Place, output string) error {
	all, err := listAll(ctx, api, where)
	if err != nil {
		return err
	}
	if done, err := a.PrintObject(output, client.TrafficRoutingList{Items: all}); done || err != nil {
		return err
	}
	if len(all) == 0 {
		a.Printf(a.Err, "There are no traffic routings: save one with `slipway trafficrouting apply -f FILE`.\n")
		return nil
	}
	table := render.NewTable("NAME", "PHASE", "HELD BY", "AGE")
	for _, t := range all {
		table.Add(t.Namespace+"/"+t.Name, string(t.Status.Phase), render.OrDash(strings.Join(t.Status.Holders, ", ")), a.Age(t.CreatedAt))
	}
	a.Printf(a.Out, "%s", table)
	return nil
}

func getCommand(a *app.App) *cobra.Command {
	var output string
	var where app.Place
	command := &cobra.Command{
		Use:               "get NAME",
		Short:             "Show a traffic routing, and who holds it",
		Args:              app.OneName("a traffic routing"),
		ValidArgsFunction: a.Complete(names(&where)),
		RunE: func(c *cobra.Command, args []string) error {
			name, err := where.Named(args[0])
			if err != nil {
				return err
			}
			api, err := app.Connect(c)
			if err != nil {
				return err
			}
			answer, err := apiclient.Read[client.TrafficRouting](api.GetTrafficRouting(c.Context(), name.Namespace, name.Name))
			if err != nil {
				return err
			}
			if done, err := a.PrintObject(output, answer.Raw); done || err != nil {
				return err
			}
			t := answer.Value
			a.Printf(a.Out, "traffic routing %s is %s%s\n", name, t.Status.Phase, render.Because(t.Status.Message))
			for _, holder := range t.Status.Holders {
				a.Printf(a.Out, "held by %s\n", render.OneLine(holder))
			}
			a.Printf(a.Out, "\n")
			_, err = a.PrintObject(app.YAML, t.Spec)
			return err
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	where.NamespaceFlag(command)
	return command
}

// names completes NAME where the namespace is given, NAMESPACE/NAME otherwise.
func names(where *app.Place) app.Lister {
	return func(ctx context.Context, api *client.Client) ([]string, error) {
		all, err := listAll(ctx, api, *where)
		var entries []string
		for _, t := range all {
			name := t.Namespace + "/" + t.Name
			if where.Namespace != "" {
				name = t.Name
			}
			entries = append(entries, name+"\t"+string(t.Status.Phase))
		}
		return entries, err
	}
}

func deleteCommand(a *app.App) *cobra.Command {
	var output string
	var where app.Place
	command := &cobra.Command{
		Use:               "delete NAME...",
		Short:             "Delete traffic routings",
		Long:              "Delete traffic routings. One that a rollout holds is refused: its routes would have nobody to give them back.",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.CompleteAll(names(&where)),
		RunE: func(c *cobra.Command, args []string) error {
			for _, argument := range args {
				if _, err := where.Named(argument); err != nil {
					return err
				}
			}
			api, err := a.ConnectToWrite(c)
			if err != nil {
				return err
			}
			return a.DeleteAll(c, api, app.Deletion{Noun: "traffic routing", Call: func(c *cobra.Command, api *client.Client, argument string) error {
				name, err := where.Named(argument)
				if err != nil {
					return err
				}
				return apiclient.NoContent(api.DeleteTrafficRouting(c.Context(), name.Namespace, name.Name))
			}}, args, output)
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	where.NamespaceFlag(command)
	return command
}

func applyCommand(a *app.App) *cobra.Command {
	var files []string
	var output string
	var where app.Place
	command := &cobra.Command{
		Use:     "apply -f FILE [NAME]",
		Aliases: []string{"put"},
		Short:   "Create or replace traffic routings",
		Long: `Create or replace traffic routings. A file holds TrafficRouting documents (rollouts.kruise.io/v1alpha1) separated by "---", or one
spec alone, which is called NAME. -n says the namespace where a document does not.`,
		Example: `  slipway trafficrouting apply -f mse-traffic.yaml -n shop`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			documents, err := readAll(a, files, where, strings.Join(args, ""))
			if err != nil {
				return err
			}
			api, err := a.ConnectToWrite(c)
			if err != nil {
				return err
			}
			return manifest.SendAll(a, c, api, manifest.Application{Noun: "traffic routing", Put: put}, documents, output)
		},
	}
	app.ClientFlags(command)
	manifest.FileFlag(command, &files)
	app.OutputFlag(command, &output)
	where.NamespaceFlag(command)
	return command
}

// readAll reads the documents; each is called NAMESPACE/NAME.
func readAll(a *app.App, files []string, where app.Place, argument string) ([]manifest.Document, error) {
	var documents []manifest.Document
	for _, file := range files {
		text, shown, err := manifest.ReadFile(a, file)
		if err != nil {
			return nil, err
		}
		for _, part := range manifest.SplitDocuments(text) {
			d, err := readOne(shown, part, where, argument)
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
		return nil, app.Usagef("NAME names one traffic routing, and there are %d documents: write whole objects with metadata.name", len(documents))
	}
	return documents, nil
}
