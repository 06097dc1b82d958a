// Package party implements `slipway party`: parties and the state of their workers.
package party

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/manifest"
	"slipway.io/slipway/cli/noun"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/strictyaml"
)

// Command returns `slipway party`.
func Command(a *app.App) *cobra.Command {
	n := parties(a)
	command := &cobra.Command{Use: n.Command, Aliases: []string{"parties"},
		Short: "Manage parties and show whether their workers are reachable"}
	command.AddCommand(applyCommand(n), n.ListCommand("List the parties and whether they are reachable",
		noun.ListOptions{}),
		n.GetCommand("Show a party and its workers"), n.DeleteCommand(
			`Delete parties. Their clusters and workers are not changed. A party that is used by an open release is not deleted.
If the home cluster has a namespace with the party's name, the party "default" serves it afterwards.`))
	return command
}

func parties(a *app.App) *noun.Noun[client.PartyState, client.PartyState] {
	return &noun.Noun[client.PartyState, client.PartyState]{
		App: a, Command: "party", Name: "party", Argument: "NAME", Collection: "parties",
		Key:    func(p client.PartyState) string { return p.Name },
		Note:   func(p client.PartyState) string { return p.Queue },
		Titles: []string{"NAME", "REACHABLE", "LAST SEEN", "QUEUE", "NAMESPACE", "AGE"},
		Row: func(p client.PartyState) []string {
			return []string{p.Name, string(p.Reachable), a.AgeIfAny(p.LastSeenAt), p.Queue, p.Namespace,
				a.AgeIfAny(p.CreatedAt)}
		},
		Describe: func(_ string, p client.PartyState) error { return describe(a, p) },
	}
}

func describe(a *app.App, p client.PartyState) error {
	reachable := map[party.Reachability]string{party.Reachable: "is reachable", party.Unreachable: "is unreachable",
		party.Unknown: "may be reachable"}[p.Reachable]
	a.Printf(a.Out, "party %s %s: %s\nworkers poll queue: %s\n", render.OneLine(p.Name), reachable,
		render.OneLine(p.Reason),
		render.OneLine(p.Queue))
	if p.Namespace != "" {
		a.Printf(a.Out, "default namespace of workloads: %s\n", render.OneLine(p.Namespace))
	}
	if len(p.Labels) > 0 {
		var labels []string
		for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
			labels = append(labels, key+"="+p.Labels[key])
		}
		a.Printf(a.Out, "labels: %s\n", render.OneLine(strings.Join(labels, ", ")))
	}
	if len(p.Workers) == 0 {
		return nil
	}
	table := render.NewTable("WORKER", "HOST", "BUILD", "UP", "LAST SEEN")
	for _, w := range p.Workers {
		table.Add(w.Identity, w.Host, w.Build, a.Age(w.StartedAt), a.Age(w.LastSeenAt))
	}
	a.Printf(a.Out, "\n%s", table)
	return nil
}

func applyCommand(n *noun.Noun[client.PartyState, client.PartyState]) *cobra.Command {
	return n.ApplyCommand(
		`A file contains either the spec of one party (queue, namespace and labels, all optional), whose name is set by --name
or taken from the file name (alice.yaml is party alice), or one or more Party objects (apiVersion slipway.io/v1alpha1),
separated by "---".

All documents are validated before the first one is sent.`, `  slipway party apply -f parties.yaml
  echo 'namespace: shop' | slipway party apply --name alice -f -`, manifest.Applier{
			Kind: manifest.KindParty, NameFlag: "--name", ValidName: catalog.ValidParty,
			Check: func(body []byte) strictyaml.Errors {
				_, errors := party.Decode(body)
				return errors
			},
		})
}
