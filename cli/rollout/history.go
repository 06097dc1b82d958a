package rollout

import (
	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
)

func historyCommand(a *app.App) *cobra.Command {
	var output string
	var where app.Place
	var most int
	command := &cobra.Command{
		Use:   "history NAME",
		Short: "List the releases of a rollout's name, newest first",
		Long: `List the releases of a rollout's name, newest first: the one that runs, and the past ones that are kept. With -o json or yaml each
is there whole, with who decided what.`,
		Example:           `  slipway rollout history shop/web --limit 5`,
		Args:              app.OneName("a rollout"),
		ValidArgsFunction: complete(a, &where),
		RunE: func(c *cobra.Command, args []string) error {
			name, err := where.Named(args[0])
			if err != nil {
				return err
			}
			if most < 0 {
				return app.Usagef("--limit %d is negative: 0 lists all releases", most)
			}
			return history(a, c, name, most, output)
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	where.Flags(command)
	command.Flags().IntVar(&most, "limit", 0, "at most `n` releases; 0: all")
	return command
}

func history(a *app.App, c *cobra.Command, name app.Name, most int, output string) error {
	api, err := app.Connect(c)
	if err != nil {
		return err
	}
	releases, err := apiclient.AllPages(most, func(limit int, cursor *string) ([]client.RolloutRelease, string, error) {
		page, err := apiclient.Read[client.RolloutHistory](api.GetRolloutHistory(c.Context(), name.Namespace, name.Name,
			&client.GetRolloutHistoryParams{Party: name.PartyParam(), Limit: &limit, Cursor: cursor}))
		return page.Value.Items, page.Value.NextCursor, err
	})
	if err != nil {
		return err
	}
	if done, err := a.PrintObject(output, client.RolloutHistory{Items: releases}); done || err != nil {
		return err
	}
	table := render.NewTable("STARTED", "PHASE", "TOOK", "BY", "WHAT", "WHY")
	for _, r := range releases {
		s := r.Rollout
		table.Add(render.Clock(s.CreatedAt, a.Now()), string(s.Phase), a.Took(&s.CreatedAt, s.FinishedAt), render.OrDash(r.Actor), render.OrDash(newVersion(s)), render.OrDash(r.Reason))
	}
	a.Printf(a.Out, "%s", table)
	return nil
}
