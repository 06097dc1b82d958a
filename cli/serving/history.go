package serving

import (
	"fmt"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/serving"
)

func historyCommand(a *app.App) *cobra.Command {
	var output string
	var most int
	command := &cobra.Command{
		Use:   "history ID",
		Short: "List the operations on a serving, newest first",
		Long: `List the operations on a serving, newest first: the one that is under way, and the past ones that are kept, also when the serving was deleted.
With -o json or yaml each is there whole, with what every party was asked to run and who decided what.`,
		Example:           `  slipway serving history serving-01 --limit 5`,
		Args:              app.ExactName("a serving", "ID"),
		ValidArgsFunction: a.Complete(ids),
		RunE: func(c *cobra.Command, args []string) error {
			if most < 0 {
				return app.Usagef("--limit %d is negative: 0 lists all operations", most)
			}
			return history(a, c, args[0], most, output)
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	command.Flags().IntVar(&most, "limit", 0, "at most `n` operations; 0: all")
	return command
}

func history(a *app.App, c *cobra.Command, id string, most int, output string) error {
	api, err := app.Connect(c)
	if err != nil {
		return err
	}
	releases, err := apiclient.AllPages(most, func(limit int, cursor *string) ([]serving.Release, string, error) {
		page, err := apiclient.Read[client.ServingHistory](api.GetServingHistory(c.Context(), id, &client.GetServingHistoryParams{Limit: &limit, Cursor: cursor}))
		return page.Value.Items, page.Value.NextCursor, err
	})
	if err != nil {
		return err
	}
	if done, err := a.PrintObject(output, client.ServingHistory{Items: releases}); done || err != nil {
		return err
	}
	table := render.NewTable("STARTED", "OPERATION", "GENERATION", "STATE", "TOOK", "VERSION", "WHAT HAPPENED")
	for _, r := range releases {
		table.Add(render.Clock(r.StartedAt, a.Now()), r.Kind, fmt.Sprint(r.Generation), string(r.State), a.Took(&r.StartedAt, r.FinishedAt), render.OrDash(r.Version),
			render.OrDash(render.Clipped(render.OneLine(r.Message), 100)))
	}
	a.Printf(a.Out, "%s", table)
	return nil
}
