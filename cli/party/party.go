// Package party holds the commands on parties and shows whether their workers are there.
package party

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/manifest"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/strictyaml"
)

// Command is `slipway party`.
func Command(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:     "party",
		Aliases: []string{"parties"},
		Short:   "Parties: whose clusters there are, and whether their workers are there",
	}
	command.AddCommand(applyCommand(a), listCommand(a), getCommand(a), deleteCommand(a))
	return command
}

func listCommand(a *app.App) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "list",
		Short: "List the parties, and which of them can be reached",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := app.Connect(c)
			if err != nil {
				return err
			}
			parties, err := apiclient.AllPages(0, func(limit int, cursor *string) ([]client.PartyState, string, error) {
				page, err := apiclient.Read[client.PartyList](api.ListParties(c.Context(), &client.ListPartiesParams{Limit: &limit, Cursor: cursor}))
				return page.Value.Items, page.Value.NextCursor, err
			})
			if err != nil {
				return err
			}
			return printList(a, output, parties)
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	return command
}

func printList(a *app.App, output string, parties []client.PartyState) error {
	if done, err := a.PrintObject(output, client.PartyList{Items: parties}); done || err != nil {
		return err
	}
	table := render.NewTable("NAME", "REACHABLE", "LAST SEEN", "QUEUE", "NAMESPACE", "AGE")
	for _, p := range parties {
		table.Add(p.Name, string(p.Reachable), render.OrDash(a.AgeIfAny(p.LastSeenAt)), p.Queue, render.OrDash(p.Namespace), render.OrDash(a.AgeIfAny(p.CreatedAt)))
	}
	a.Printf(a.Out, "%s", table)
	return nil
}

func getCommand(a *app.App) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:               "get NAME",
		Short:             "Show a party, and who of it is there",
		Args:              app.ExactName("a party", "NAME"),
		ValidArgsFunction: a.Complete(app.PartyNames),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := app.Connect(c)
			if err != nil {
				return err
			}
			answer, err := apiclient.Read[client.PartyState](api.GetParty(c.Context(), args[0]))
			if err != nil {
				return err
			}
			if done, err := a.PrintObject(output, answer.Raw); done || err != nil {
				return err
			}
			describe(a, answer.Value)
			return nil
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	return command
}

func describe(a *app.App, p client.PartyState) {
	reachable := map[party.Reachability]string{party.Reachable: "can be reached", party.Unreachable: "cannot be reached", party.Unknown: "may be reachable or not"}[p.Reachable]
	a.Printf(a.Out, "party %s %s: %s\nits workers poll queue %s\n", render.OneLine(p.Name), reachable, render.OneLine(p.Reason), render.OneLine(p.Queue))
	if p.Namespace != "" {
		a.Printf(a.Out, "its workloads are in namespace %s unless a request says otherwise\n", render.OneLine(p.Namespace))
	}
	if len(p.Labels) > 0 {
		var labels []string
		for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
			labels = append(labels, key+"="+p.Labels[key])
		}
		a.Printf(a.Out, "labels %s\n", render.OneLine(strings.Join(labels, ", ")))
	}
	if len(p.Workers) == 0 {
		return
	}
	table := render.NewTable("WORKER", "HOST", "UP", "LAST SEEN")
	for _, w := range p.Workers {
		table.Add(w.Identity, render.OrDash(w.Host), a.Age(w.StartedAt), a.Age(w.LastSeenAt))
	}
	a.Printf(a.Out, "\n%s", table)
}

func deleteCommand(a *app.App) *cobra.Command {
	command := a.DeleteCommand(app.Deletion{
		Noun: "party", Argument: "NAME", Complete: app.PartyNames,
		Long: `Delete parties. Their clusters and workers stay as they are. A party that an open release names is refused. Where the home cluster has a
namespace of the party's name, the party "default" serves it from then on.`,
		Call: func(c *cobra.Command, api *client.Client, name string) error {
			return apiclient.NoContent(api.DeleteParty(c.Context(), name))
		},
	})
	command.Short = "Delete parties"
	return command
}

func applyCommand(a *app.App) *cobra.Command {
	var files []string
	var name, output string
	command := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create or replace parties",
		Long: fmt.Sprintf(`Create or replace parties. A file holds either one party's document (queue, namespace, labels; all of them optional), which is called by
--name or else after the file (alice.yaml is party alice), or any number of %s objects (apiVersion slipway.io/v1alpha1), separated by "---".

Every document is checked before the first one is sent.`, manifest.KindParty),
		Example: `  slipway party apply -f parties.yaml
  echo 'namespace: shop' | slipway party apply --name alice -f -`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return manifest.Apply(a, c, manifest.Application{
				Noun: "party", Kind: manifest.KindParty, NameFlag: "--name", ValidName: catalog.ValidParty,
				Check: func(body []byte) strictyaml.Errors { _, errors := party.Decode(body); return errors },
				Put:   put,
			}, files, name, output)
		},
	}
	app.ClientFlags(command)
	manifest.FileFlag(command, &files)
	command.Flags().StringVar(&name, "name", "", "`name` of the party, when the file holds its document alone (default: after the file)")
	app.OutputFlag(command, &output)
	return command
}

func put(c *cobra.Command, api *client.Client, d manifest.Document) (manifest.Applied, error) {
	answer, err := apiclient.Read[client.PutPartyResult](api.PutPartyWithBody(c.Context(), d.Name, apiclient.YAMLBody, bytes.NewReader(d.Body)))
	if err != nil {
		return manifest.Applied{}, err
	}
	return manifest.Applied{Outcome: manifest.OutcomeOf(answer.Status, answer.Value.Changed)}, nil
}
