package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/release/serving"
)

func (a *app) servingCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "serving",
		Aliases: []string{"servings"},
		Short:   "Servings: what several parties run together",
		Long: `Servings: what several parties run together. A serving is declared with Kuscia's requests, as files, or with a KusciaDeployment; the engine
brings every party to it, and an update that fails in one party is taken back in all.`,
	}
	command.AddCommand(a.servingCreateCommand(), a.servingUpdateCommand(), a.servingQueryCommand(), a.servingDeleteCommand(), a.servingListCommand(), a.servingWatchCommand(),
		a.servingHistoryCommand())
	command.AddCommand(a.servingVerbCommands()...)
	return command
}

func (a *app) servingListCommand() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "list",
		Short: "List the servings, with their state",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := connect(c)
			if err != nil {
				return err
			}
			servings, err := allPages(0, func(limit int, cursor *string) ([]serving.View, string, error) {
				page, err := read[client.ServingList](api.ListServings(c.Context(), &client.ListServingsParams{Limit: &limit, Cursor: cursor}))
				return page.value.Items, page.value.NextCursor, err
			})
			if err != nil {
				return err
			}
			return a.printServings(output, servings)
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	return command
}

func (a *app) printServings(output string, servings []serving.View) error {
	if done, err := a.printObject(output, client.ServingList{Items: servings}); done || err != nil {
		return err
	}
	if len(servings) == 0 {
		a.printf(a.err, "There are no servings: declare one with `slipway serving create -f FILE`.\n")
		return nil
	}
	table := newTable("ID", "STATE", "PARTIES", "OPERATION", "WAITS FOR", "SINCE", "AGE", "REASON")
	for _, s := range servings {
		wait, since := "", ""
		if w := waitOf(s); w != nil {
			wait, since = servingWaitInWords(w), a.age(w.Since.Time)
		}
		table.add(s.ID, servingState(s), fmt.Sprintf("%d/%d", s.AvailableParties, s.TotalParties), orDash(operationInWords(s)), orDash(wait), orDash(since), a.age(s.CreatedAt),
			orDash(clipped(oneLine(reasonAndMessage(s.Reason, s.Message)), 60)))
	}
	a.printf(a.out, "%s", table)
	return nil
}

func (a *app) servingQueryCommand() *cobra.Command {
	var output string
	var token kusciaToken
	command := &cobra.Command{
		Use:   "query ID",
		Short: "Show a serving: its state, its parties, where they are reached",
		Long: `Show a serving: its state, its parties with their replicas, where they are reached, and why it does not serve if it does not.

-o json and -o yaml give the data of Kuscia's query: the input configuration, the parties as they were asked for, and the status. Slipway's own
view, which the table is made of, is what "serving list" and "serving watch" give to programs.`,
		Example: `  slipway serving query serving-01
  slipway serving query serving-01 -o json | jq -r .status.state`,
		Args:              exactName("a serving", "ID"),
		ValidArgsFunction: a.complete(servingIDs),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := connect(c)
			if err != nil {
				return err
			}
			if output != outputTable {
				data, err := queryServing(c.Context(), api, token, args[0])
				if err != nil {
					return err
				}
				_, err = a.printObject(output, data)
				return err
			}
			answer, err := readServing(c.Context(), api, args[0])
			if err != nil {
				return err
			}
			for _, line := range a.drawing().wholeServing(answer) {
				a.printf(a.out, "%s\n", line)
			}
			return nil
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	token.flags(command)
	return command
}

func readServing(ctx context.Context, api *client.Client, id string) (serving.View, error) {
	answer, err := read[serving.View](api.GetServing(ctx, id))
	return answer.value, err
}

// queryServing is what Kuscia's API answers for a serving.
func queryServing(ctx context.Context, api *client.Client, token kusciaToken, id string) (any, error) {
	data, err := kusciaData(api.QueryKusciaServing(ctx, client.KusciaMessage{"serving_id": id}, token.shown))
	return data, err
}

func (a *app) servingDeleteCommand() *cobra.Command {
	var token kusciaToken
	command := a.deleteCommand(deletion{
		noun: "serving", argument: "ID", complete: servingIDs,
		long: `Delete servings. The answer comes at once; what their parties run is removed after it, by a party that is away when it returns. Until then
"slipway serving watch ID" shows what is left, and no other serving can have the ID.`,
		call: func(c *cobra.Command, api *client.Client, id string) error {
			_, err := kusciaData(api.DeleteKusciaServing(c.Context(), client.KusciaMessage{"serving_id": id}, token.shown))
			return err
		},
	})
	command.Short = "Delete servings"
	command.Example = `  slipway serving delete serving-01`
	token.flags(command)
	return command
}

func servingIDs(ctx context.Context, api *client.Client) ([]string, error) {
	limit := pageSize
	page, err := read[client.ServingList](api.ListServings(ctx, &client.ListServingsParams{Limit: &limit}))
	var entries []string
	for _, s := range page.value.Items {
		entries = append(entries, s.ID+"\t"+servingState(s))
	}
	return entries, err
}
