// Package serving holds the commands on servings, which several parties run together.
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

// Command is `slipway serving`.
func Command(a *app.App) *cobra.Command {
	var token apiclient.KusciaToken
	n := newNoun(a, &token)
	get := n.GetCommand("Show a serving: its state, its parties, where they are reached")
	get.Long = `Show a serving: its state, its parties with their replicas, where they are reached, and why it does not serve if it does not.

-o json and -o yaml give the data of Kuscia's query: the input configuration, the parties as they were asked for, and
the status. Slipway's own
view, which the table is made of, is what "serving list" and "serving watch" give to programs.`
	get.Example = `  slipway serving get serving-01
  slipway serving get serving-01 -o json | jq -r .status.state`
	token.Flags(get)
	remove := n.DeleteCommand(`Delete servings. The answer comes at once; what their parties run is removed after it, by
a party that is away when it returns. Until then
"slipway serving watch ID" shows what is left, and no other serving can have the ID.`)
	token.Flags(remove)
	command := &cobra.Command{
		Use: n.Command, Aliases: []string{"servings"}, Short: "Servings: what several parties run together",
		Long: `Servings: what several parties run together. A serving is declared with Kuscia's requests, as files, or with
a KusciaDeployment; the engine
brings every party to it, and an update that fails in one party is taken back in all.`,
	}
	for _, mode := range modes {
		command.AddCommand(filesCommand(a, mode, &token))
	}
	command.AddCommand(get, remove, n.ListCommand("List the servings, with their state", noun.ListOptions{}), watchCommand(n),
		historyCommand(n))
	for _, v := range verbs(n) {
		command.AddCommand(n.VerbCommand(v, inWords))
	}
	return command
}

func newNoun(a *app.App, token *apiclient.KusciaToken) *servings {
	return &servings{
		App: a, Command: "serving", Name: "serving", Argument: "ID",
		Page: func(ctx context.Context, api *client.Client, limit int, cursor *string) ([]serving.View, string, error) {
			return apiclient.ReadPage[serving.View](api.ListServings(ctx, &client.ListServingsParams{Limit: &limit, Cursor: cursor}))
		},
		Key:    func(s serving.View) string { return s.ID },
		Note:   func(s serving.View) string { return string(s.Phase) },
		Titles: []string{"ID", "STATE", "PARTIES", "OPERATION", "WAITS FOR", "SINCE", "AGE", "REASON"},
		Row: func(s serving.View) []string {
			wait, since := "", ""
			if w := waitOf(s); w != nil {
				wait, since = waitInWords(w), a.Age(w.Since.Time)
			}
			return []string{s.ID, state(s), fmt.Sprintf("%d/%d", s.AvailableParties, s.TotalParties), operationInWords(s), wait, since,
				a.Age(s.CreatedAt),
				render.ReasonAndMessage(s.Reason, s.Message)}
		},
		Empty: "There are no servings: declare one with `slipway serving create -f FILE`.",
		Read: func(ctx context.Context, api *client.Client, id string) (apiclient.Reply[serving.View], error) {
			if a.Output == app.Table {
				return apiclient.Read[serving.View](api.GetServing(ctx, id))
			}
			data, err := apiclient.KusciaData(api.QueryKusciaServing(ctx, client.KusciaMessage{"serving_id": id}, token.Shown))
			return apiclient.Reply[serving.View]{Raw: data}, err
		},
		Describe: func(_ *app.App, _ string, v serving.View) error {
			a.Draw(whole(a.Drawing(), v))
			return nil
		},
		Delete: func(ctx context.Context, api *client.Client, id string) error {
			_, err := apiclient.KusciaData(api.DeleteKusciaServing(ctx, client.KusciaMessage{"serving_id": id}, token.Shown))
			return err
		},
	}
}

func historyCommand(n *servings) *cobra.Command {
	page := func(ctx context.Context, api *client.Client, id string, limit int, cursor *string) ([]serving.Release, string, error) {
		return apiclient.ReadPage[serving.Release](api.GetServingHistory(ctx, id,
			&client.GetServingHistoryParams{Limit: &limit, Cursor: cursor}))
	}
	titles := []string{"STARTED", "OPERATION", "GENERATION", "STATE", "TOOK", "VERSION", "WHAT HAPPENED"}
	command := noun.HistoryCommand(n, "operations", page, titles, func(r serving.Release) []string {
		return []string{render.Clock(r.StartedAt, n.App.Now()), r.Kind, fmt.Sprint(r.Generation), string(r.State),
			n.App.Took(&r.StartedAt, r.FinishedAt),
			r.Version, render.Cell(r.Message)}
	})
	command.Short = "List the operations on a serving, newest first"
	command.Long = `List the operations on a serving, newest first: the one that is under way, and the past ones that
are kept, also when the serving was deleted.
With -o json or yaml each is there whole, with what every party was asked to run and who decided what.`
	command.Example = `  slipway serving history serving-01 --limit 5`
	return command
}
