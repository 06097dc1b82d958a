package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/release/serving"
)

func (a *app) servingHistoryCommand() *cobra.Command {
	var output string
	var most int
	command := &cobra.Command{
		Use:   "history ID",
		Short: "List the operations on a serving, newest first",
		Long: `List the operations on a serving, newest first: the one that is under way, and the past ones that are kept, also when the serving was deleted.
With -o json or yaml each is there whole, with what every party was asked to run and who decided what.`,
		Example:           `  slipway serving history serving-01 --limit 5`,
		Args:              exactName("a serving", "ID"),
		ValidArgsFunction: a.complete(servingIDs),
		RunE: func(c *cobra.Command, args []string) error {
			if most < 0 {
				return usagef("--limit %d is negative: 0 lists all operations", most)
			}
			return a.servingHistory(c, args[0], most, output)
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	command.Flags().IntVar(&most, "limit", 0, "at most `n` operations; 0: all")
	return command
}

func (a *app) servingHistory(c *cobra.Command, id string, most int, output string) error {
	api, err := connect(c)
	if err != nil {
		return err
	}
	releases, err := allPages(most, func(limit int, cursor *string) ([]serving.Release, string, error) {
		page, err := read[client.ServingHistory](api.GetServingHistory(c.Context(), id, &client.GetServingHistoryParams{Limit: &limit, Cursor: cursor}))
		return page.value.Items, page.value.NextCursor, err
	})
	if err != nil {
		return err
	}
	if done, err := a.printObject(output, client.ServingHistory{Items: releases}); done || err != nil {
		return err
	}
	table := newTable("STARTED", "OPERATION", "GENERATION", "STATE", "TOOK", "VERSION", "WHAT HAPPENED")
	for _, r := range releases {
		table.add(clock(r.StartedAt, a.now()), r.Kind, fmt.Sprint(r.Generation), string(r.State), a.took(&r.StartedAt, r.FinishedAt), orDash(r.Version),
			orDash(clipped(oneLine(r.Message), 100)))
	}
	a.printf(a.out, "%s", table)
	return nil
}
