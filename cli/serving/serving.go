// Package serving holds the commands on servings, which several parties run together.
package serving

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/serving"
)

// Command is `slipway serving`.
func Command(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:     "serving",
		Aliases: []string{"servings"},
		Short:   "Servings: what several parties run together",
		Long: `Servings: what several parties run together. A serving is declared with Kuscia's requests, as files, or with a KusciaDeployment; the engine
brings every party to it, and an update that fails in one party is taken back in all.`,
	}
	command.AddCommand(createCommand(a), updateCommand(a), getCommand(a), deleteCommand(a), listCommand(a), watchCommand(a),
		historyCommand(a))
	command.AddCommand(verbCommands(a)...)
	return command
}

func listCommand(a *app.App) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "list",
		Short: "List the servings, with their state",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := app.Connect(c)
			if err != nil {
				return err
			}
			servings, err := apiclient.AllPages(0, func(limit int, cursor *string) ([]serving.View, string, error) {
				page, err := apiclient.Read[client.ServingList](api.ListServings(c.Context(), &client.ListServingsParams{Limit: &limit, Cursor: cursor}))
				return page.Value.Items, page.Value.NextCursor, err
			})
			if err != nil {
				return err
			}
			return printList(a, output, servings)
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	return command
}

func printList(a *app.App, output string, servings []serving.View) error {
	if done, err := a.PrintObject(output, client.ServingList{Items: servings}); done || err != nil {
		return err
	}
	if len(servings) == 0 {
		a.Printf(a.Err, "There are no servings: declare one with `slipway serving create -f FILE`.\n")
		return nil
	}
	table := render.NewTable("ID", "STATE", "PARTIES", "OPERATION", "WAITS FOR", "SINCE", "AGE", "REASON")
	for _, s := range servings {
		wait, since := "", ""
		if w := waitOf(s); w != nil {
			wait, since = waitInWords(w), a.Age(w.Since.Time)
		}
		table.Add(s.ID, state(s), fmt.Sprintf("%d/%d", s.AvailableParties, s.TotalParties), render.OrDash(operationInWords(s)), render.OrDash(wait), render.OrDash(since), a.Age(s.CreatedAt),
			render.OrDash(render.ReasonAndMessage(s.Reason, s.Message)))
	}
	a.Printf(a.Out, "%s", table)
	return nil
}

func getCommand(a *app.App) *cobra.Command {
	var output string
	var token apiclient.KusciaToken
	command := &cobra.Command{
		Use:   "get ID",
		Short: "Show a serving: its state, its parties, where they are reached",
		Long: `Show a serving: its state, its parties with their replicas, where they are reached, and why it does not serve if it does not.

-o json and -o yaml give the data of Kuscia's query: the input configuration, the parties as they were asked for, and the status. Slipway's own
view, which the table is made of, is what "serving list" and "serving watch" give to programs.`,
		Example: `  slipway serving get serving-01
  slipway serving get serving-01 -o json | jq -r .status.state`,
		Args:              app.ExactName("a serving", "ID"),
		ValidArgsFunction: a.Complete(ids),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := app.Connect(c)
			if err != nil {
				return err
			}
			if output != app.Table {
				data, err := query(c.Context(), api, token, args[0])
				if err != nil {
					return err
				}
				_, err = a.PrintObject(output, data)
				return err
			}
			answer, err := readOne(c.Context(), api, args[0])
			if err != nil {
				return err
			}
			for _, line := range whole(a.Drawing(), answer) {
				a.Printf(a.Out, "%s\n", line)
			}
			return nil
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	token.Flags(command)
	return command
}

func readOne(ctx context.Context, api *client.Client, id string) (serving.View, error) {
	answer, err := apiclient.Read[serving.View](api.GetServing(ctx, id))
	return answer.Value, err
}

// query is what Kuscia's API answers for a serving.
func query(ctx context.Context, api *client.Client, token apiclient.KusciaToken, id string) (any, error) {
	data, err := apiclient.KusciaData(api.QueryKusciaServing(ctx, client.KusciaMessage{"serving_id": id}, token.Shown))
	return data, err
}

func deleteCommand(a *app.App) *cobra.Command {
	var token apiclient.KusciaToken
	command := a.DeleteCommand(app.Deletion{
		Noun: "serving", Argument: "ID", Complete: ids,
		Long: `Delete servings. The answer comes at once; what their parties run is removed after it, by a party that is away when it returns. Until then
"slipway serving watch ID" shows what is left, and no other serving can have the ID.`,
		Call: func(c *cobra.Command, api *client.Client, id string) error {
			_, err := apiclient.KusciaData(api.DeleteKusciaServing(c.Context(), client.KusciaMessage{"serving_id": id}, token.Shown))
			return err
		},
	})
	command.Short = "Delete servings"
	command.Example = `  slipway serving delete serving-01`
	token.Flags(command)
	return command
}

func ids(ctx context.Context, api *client.Client) ([]string, error) {
	limit := apiclient.PageSize
	page, err := apiclient.Read[client.ServingList](api.ListServings(ctx, &client.ListServingsParams{Limit: &limit}))
	var entries []string
	for _, s := range page.Value.Items {
		entries = append(entries, s.ID+"\t"+state(s))
	}
	return entries, err
}
