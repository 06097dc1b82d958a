package main

import (
	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
)

func (a *app) rolloutHistoryCommand() *cobra.Command {
	var output string
	var where place
	var most int
	command := &cobra.Command{
		Use:   "history NAME",
		Short: "List the releases of a rollout's name, newest first",
		Long: `List the releases of a rollout's name, newest first: the one that runs, and the past ones that are kept. With -o json or yaml each
is there whole, with who decided what.`,
		Example:           `  slipway rollout history shop/web --limit 5`,
		Args:              oneName("a rollout"),
		ValidArgsFunction: a.completeRollouts(&where),
		RunE: func(c *cobra.Command, args []string) error {
			name, err := where.named(args[0])
			if err != nil {
				return err
			}
			if most < 0 {
				return usagef("--limit %d is negative: 0 lists all releases", most)
			}
			return a.rolloutHistory(c, name, most, output)
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	where.flags(command)
	command.Flags().IntVar(&most, "limit", 0, "at most `n` releases; 0: all")
	return command
}

func (a *app) rolloutHistory(c *cobra.Command, name rolloutName, most int, output string) error {
	api, err := connect(c)
	if err != nil {
		return err
	}
	releases, err := allPages(most, func(limit int, cursor *string) ([]client.RolloutRelease, string, error) {
		page, err := read[client.RolloutHistory](api.GetRolloutHistory(c.Context(), name.namespace, name.name,
			&client.GetRolloutHistoryParams{Party: name.partyParam(), Limit: &limit, Cursor: cursor}))
		return page.value.Items, page.value.NextCursor, err
	})
	if err != nil {
		return err
	}
	if done, err := a.printObject(output, client.RolloutHistory{Items: releases}); done || err != nil {
		return err
	}
	table := newTable("STARTED", "PHASE", "TOOK", "BY", "WHAT", "WHY")
	for _, r := range releases {
		s := r.Rollout
		table.add(clock(s.CreatedAt, a.now()), string(s.Phase), a.took(&s.CreatedAt, s.FinishedAt), orDash(r.Actor), orDash(newVersion(s)), orDash(r.Reason))
	}
	a.printf(a.out, "%s", table)
	return nil
}
