// Package serving implements `slipway serving`. A serving runs on the clusters of several parties.
package serving

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/noun"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/serving"
)

type servings = noun.Noun[serving.View, serving.View]

// Command returns `slipway serving`.
func Command(a *app.App) *cobra.Command {
	n := newNoun(a)
	get := n.GetCommand("Show a serving: its state, parties and endpoints")
	get.Long = `Show a serving: its state, its parties with their replicas and endpoints, and why it is not serving.

-o json and -o yaml also print its spec: the input configuration and the requested parties.`
	get.Example = `  slipway serving get serving-01
  slipway serving get serving-01 -o json | jq -r .phase`
	remove := n.DeleteCommand(
		`Delete servings. The command returns immediately; the resources of the parties are removed afterwards (for an
unreachable party, when it is reachable again). Until then, "slipway serving watch ID" shows what remains, and the ID
cannot be reused.`)
	command := &cobra.Command{
		Use: n.Command, Aliases: []string{"servings"}, Short: "Manage servings, which run on several parties' clusters",
		Long: `Manage servings, which run on the clusters of several parties. A serving is created from a KusciaDeployment,
or from Kuscia's request. The engine updates all parties; an update that fails for one party is rolled back
for all.`,
	}
	for _, mode := range modes {
		command.AddCommand(filesCommand(a, mode))
	}
	command.AddCommand(get, remove, n.ListCommand("List the servings, with their state", noun.ListOptions{}),
		watchCommand(n),
		historyCommand(n))
	for _, v := range verbs(n) {
		command.AddCommand(n.VerbCommand(v, stateText))
	}
	return command
}

func newNoun(a *app.App) *servings {
	return &servings{
		App: a, Command: "serving", Name: "serving", Argument: "ID",
		Page: func(ctx context.Context, api *client.Client, limit int, cursor *string) ([]serving.View, string, error) {
			return apiclient.ReadPage[serving.View](
				api.ListServings(ctx, &client.ListServingsParams{Limit: &limit, Cursor: cursor}))
		},
		Key:    func(s serving.View) string { return s.ID },
		Note:   func(s serving.View) string { return string(s.Phase) },
		Titles: []string{"ID", "STATE", "PARTIES", "OPERATION", "WAITS FOR", "SINCE", "AGE", "REASON"},
		Row: func(s serving.View) []string {
			wait, since := "", ""
			if w := waitOf(s); w != nil {
				wait, since = waitText(w), a.Age(w.Since.Time)
			}
			return []string{s.ID, state(s), fmt.Sprintf("%d/%d", s.AvailableParties, s.TotalParties), operationText(s),
				wait, since,
				a.Age(s.CreatedAt),
				render.ReasonAndMessage(s.Reason, s.Message)}
		},
		Empty: "There are no servings. Create one with `slipway serving create -f FILE`.",
		Read: func(ctx context.Context, api *client.Client, id string) (apiclient.Reply[serving.View], error) {
			return apiclient.Read[serving.View](api.GetServing(ctx, id))
		},
		Describe: func(_ *app.App, _ string, v serving.View) error {
			a.Draw(drawAll(a.Drawing(), v))
			return nil
		},
		Delete: func(ctx context.Context, api *client.Client, id string) error {
			return apiclient.NoContent(api.DeleteServing(ctx, id))
		},
	}
}

func historyCommand(n *servings) *cobra.Command {
	page := func(ctx context.Context, api *client.Client, id string, limit int, cursor *string) ([]serving.Release,
		string, error) {
		return apiclient.ReadPage[serving.Release](api.GetServingHistory(ctx, id,
			&client.GetServingHistoryParams{Limit: &limit, Cursor: cursor}))
	}
	titles := []string{"STARTED", "OPERATION", "GENERATION", "STATE", "TOOK", "VERSION", "MESSAGE"}
	command := noun.HistoryCommand(n, "operations", page, titles, func(r serving.Release) []string {
		return []string{render.Clock(r.StartedAt, n.App.Now()), r.Kind, fmt.Sprint(r.Generation), string(r.State),
			n.App.Elapsed(&r.StartedAt, r.FinishedAt),
			r.Version, render.Cell(r.Message)}
	})
	command.Short = "List the operations on a serving, newest first"
	command.Long = `List the current and past operations on a serving, newest first, even after the serving was deleted.
With -o json or yaml, each operation is printed completely, with the requested state of every party and the history of
decisions.`
	command.Example = `  slipway serving history serving-01 --limit 5`
	return command
}
