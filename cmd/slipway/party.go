package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/strictyaml"
)

func (a *app) partyCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "party",
		Aliases: []string{"parties"},
		Short:   "Parties: whose clusters there are, and whether their workers are there",
	}
	command.AddCommand(a.partyApplyCommand(), a.partyListCommand(), a.partyGetCommand(), a.partyDeleteCommand())
	return command
}

func (a *app) partyListCommand() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "list",
		Short: "List the parties, and which of them can be reached",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := connect(c)
			if err != nil {
				return err
			}
			parties, err := allPages(0, func(limit int, cursor *string) ([]client.PartyState, string, error) {
				page, err := read[client.PartyList](api.ListParties(c.Context(), &client.ListPartiesParams{Limit: &limit, Cursor: cursor}))
				return page.value.Items, page.value.NextCursor, err
			})
			if err != nil {
				return err
			}
			return a.printParties(output, parties)
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	return command
}

func (a *app) printParties(output string, parties []client.PartyState) error {
	if done, err := a.printObject(output, client.PartyList{Items: parties}); done || err != nil {
		return err
	}
	table := newTable("NAME", "REACHABLE", "LAST SEEN", "QUEUE", "NAMESPACE", "AGE")
	for _, p := range parties {
		table.add(p.Name, string(p.Reachable), orDash(a.ageIfAny(p.LastSeenAt)), p.Queue, orDash(p.Namespace), orDash(a.ageIfAny(p.CreatedAt)))
	}
	a.printf(a.out, "%s", table)
	return nil
}

func (a *app) ageIfAny(t *time.Time) string {
	if t == nil {
		return ""
	}
	return a.age(*t)
}

func (a *app) partyGetCommand() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:               "get NAME",
		Short:             "Show a party, and who of it is there",
		Args:              exactName("a party", "NAME"),
		ValidArgsFunction: a.complete(partyNames),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := connect(c)
			if err != nil {
				return err
			}
			answer, err := read[client.PartyState](api.GetParty(c.Context(), args[0]))
			if err != nil {
				return err
			}
			if done, err := a.printObject(output, answer.raw); done || err != nil {
				return err
			}
			a.describeParty(answer.value)
			return nil
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	return command
}

func (a *app) describeParty(p client.PartyState) {
	reachable := map[party.Reachability]string{party.Reachable: "can be reached", party.Unreachable: "cannot be reached", party.Unknown: "may be reachable or not"}[p.Reachable]
	a.printf(a.out, "party %s %s: %s\nits workers poll queue %s\n", oneLine(p.Name), reachable, oneLine(p.Reason), oneLine(p.Queue))
	if p.Namespace != "" {
		a.printf(a.out, "its workloads are in namespace %s unless a request says otherwise\n", oneLine(p.Namespace))
	}
	if len(p.Labels) > 0 {
		var labels []string
		for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
			labels = append(labels, key+"="+p.Labels[key])
		}
		a.printf(a.out, "labels %s\n", oneLine(strings.Join(labels, ", ")))
	}
	if len(p.Workers) == 0 {
		return
	}
	table := newTable("WORKER", "HOST", "UP", "LAST SEEN")
	for _, w := range p.Workers {
		table.add(w.Identity, orDash(w.Host), a.age(w.StartedAt), a.age(w.LastSeenAt))
	}
	a.printf(a.out, "\n%s", table)
}

func (a *app) partyDeleteCommand() *cobra.Command {
	command := a.deleteCommand(deletion{
		noun: "party", argument: "NAME", complete: partyNames,
		long: `Delete parties. Their clusters and workers stay as they are. A party that an open release names is refused. Where the home cluster has a
namespace of the party's name, the party "default" serves it from then on.`,
		call: func(c *cobra.Command, api *client.Client, name string) error {
			return noContent(api.DeleteParty(c.Context(), name))
		},
	})
	command.Short = "Delete parties"
	return command
}

func (a *app) partyApplyCommand() *cobra.Command {
	var files []string
	var name, output string
	command := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create or replace parties",
		Long: fmt.Sprintf(`Create or replace parties. A file holds either one party's document (queue, namespace, labels; all of them optional), which is called by
--name or else after the file (alice.yaml is party alice), or any number of %s objects (apiVersion slipway.io/v1alpha1), separated by "---".

Every document is checked before the first one is sent.`, kindParty),
		Example: `  slipway party apply -f parties.yaml
  echo 'namespace: shop' | slipway party apply --name alice -f -`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.apply(c, application{
				noun: "party", kind: kindParty, nameFlag: "--name", validName: catalog.ValidParty,
				check: func(body []byte) strictyaml.Errors { _, errors := party.Decode(body); return errors },
				put:   putParty,
			}, files, name, output)
		},
	}
	clientFlags(command)
	fileFlag(command, &files)
	command.Flags().StringVar(&name, "name", "", "`name` of the party, when the file holds its document alone (default: after the file)")
	outputFlag(command, &output)
	return command
}

func putParty(c *cobra.Command, api *client.Client, d document) (applied, error) {
	answer, err := read[client.PutPartyResult](api.PutPartyWithBody(c.Context(), d.name, yamlBody, bytes.NewReader(d.body)))
	if err != nil {
		return applied{}, err
	}
	return applied{Outcome: outcomeOf(answer.status, answer.value.Changed)}, nil
}
