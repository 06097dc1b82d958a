// Package rollout holds the commands on rollouts: start, follow, approve, go back.
package rollout

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/rollout"
)

// Command is `slipway rollout`.
func Command(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:     "rollout",
		Aliases: []string{"rollouts", "ro"},
		Short:   "Rollouts: canary and blue-green releases of one workload, step by step",
	}
	command.AddCommand(startCommand(a), validateCommand(a), listCommand(a), getCommand(a), watchCommand(a),
		waitCommand(a), historyCommand(a))
	command.AddCommand(verbCommands(a)...)
	return command
}

// phases are the phases in the order in which people read them.
var phases = []rollout.Phase{rollout.PhaseProgressing, rollout.PhaseFailed, rollout.PhaseHealthy, rollout.PhaseRolledBack, rollout.PhaseCancelled}

// waitKinds are what a rollout can wait for.
var waitKinds = []rollout.WaitKind{rollout.WaitApproval, rollout.WaitTimer, rollout.WaitPods, rollout.WaitTraffic, rollout.WaitParty, rollout.WaitDrift,
	rollout.WaitResume}

// listed says which rollouts are listed, and how.
type listed struct {
	app.Place
	phases, waits []string
	most          int
	steps         bool
}

func listCommand(a *app.App) *cobra.Command {
	var output string
	var what listed
	command := &cobra.Command{
		Use:   "list",
		Short: "List the rollouts, newest first: the release that runs of each, or else its last one",
		Example: `  slipway rollout list --waiting-for approval
  slipway rollout list -n shop --steps`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return list(a, c, what, output) },
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	what.Flags(command)
	command.Flag("namespace").Usage = "only rollouts of this `namespace`"
	command.Flag("party").Usage = "only rollouts of this `party`"
	command.Flags().StringSliceVar(&what.phases, "phase", nil, "only rollouts in this `phase`; may be repeated: "+app.Joined(phases))
	command.Flags().StringSliceVar(&what.waits, "waiting-for", nil, "only rollouts that wait for this `kind` of thing; may be repeated: "+app.Joined(waitKinds))
	command.Flags().IntVar(&what.most, "limit", 0, "at most `n` rollouts; 0: all")
	command.Flags().BoolVar(&what.steps, "steps", false, "also show step, traffic and pods; that takes one request for each rollout")
	_ = command.RegisterFlagCompletionFunc("phase", cobra.FixedCompletions(strings.Split(app.Joined(phases), ", "), cobra.ShellCompDirectiveNoFileComp))
	_ = command.RegisterFlagCompletionFunc("waiting-for", cobra.FixedCompletions(strings.Split(app.Joined(waitKinds), ", "), cobra.ShellCompDirectiveNoFileComp))
	return command
}

// params are the filters as the API takes them.
func (l listed) params() (client.ListRolloutsParams, error) {
	params := client.ListRolloutsParams{}
	if l.most < 0 {
		return params, app.Usagef("--limit %d is negative: 0 lists all rollouts", l.most)
	}
	var err error
	if params.Phase, err = app.ParseOneOf("phase", l.phases, phases); err != nil {
		return params, err
	}
	if params.WaitingFor, err = app.ParseOneOf("waiting-for", l.waits, waitKinds); err != nil {
		return params, err
	}
	if l.Namespace != "" {
		params.Namespace = &l.Namespace
	}
	if l.Party != "" {
		params.Party = &l.Party
	}
	return params, nil
}

func list(a *app.App, c *cobra.Command, what listed, output string) error {
	params, err := what.params()
	if err != nil {
		return err
	}
	api, err := app.Connect(c)
	if err != nil {
		return err
	}
	rollouts, err := apiclient.AllPages(what.most, func(limit int, cursor *string) ([]client.RolloutSummary, string, error) {
		params.Limit, params.Cursor = &limit, cursor
		page, err := apiclient.Read[client.RolloutList](api.ListRollouts(c.Context(), &params))
		return page.Value.Items, page.Value.NextCursor, err
	})
	if err != nil {
		return err
	}
	if done, err := a.PrintObject(output, client.RolloutList{Items: rollouts}); done || err != nil {
		return err
	}
	if len(rollouts) == 0 {
		a.Printf(a.Err, "There are no such rollouts.\n")
		return nil
	}
	if what.steps {
		return printSteps(c.Context(), a, api, rollouts)
	}
	table := render.NewTable("NAME", "STYLE", "PHASE", "WAITS FOR", "SINCE", "AGE", "CHANGE", "REASON")
	for _, r := range rollouts {
		wait, since := "", ""
		if w := r.WaitingFor; w != nil {
			wait, since = waitInList(r.Phase, w.Kind), a.Age(w.Since)
		}
		table.Add(app.Key(r.Party, r.Namespace, r.Name), string(r.Style), string(r.Phase), render.OrDash(wait),
			render.OrDash(since), a.Age(r.CreatedAt), render.OrDash(r.Summary), render.OrDash(r.Reason))
	}
	a.Printf(a.Out, "%s", table)
	return nil
}

// waitInList names a wait by the verb that ends it: a rollout that has failed needs a retry, and a resume of it is refused.
func waitInList(phase rollout.Phase, kind rollout.WaitKind) string {
	if phase == rollout.PhaseFailed && kind == rollout.WaitResume {
		return string(rollout.VerbRetry)
	}
	return string(kind)
}

// printSteps reads each rollout for what a list does not know.
func printSteps(ctx context.Context, a *app.App, api *client.Client, rollouts []client.RolloutSummary) error {
	table := render.NewTable("NAME", "STYLE", "PHASE", "STEP", "TRAFFIC", "NEW", "READY", "OF", "WAITS FOR", "SINCE")
	for _, summary := range rollouts {
		answer, err := readOne(ctx, api, app.Name{Party: summary.Party, Namespace: summary.Namespace, Name: summary.Name})
		if err != nil {
			return err
		}
		s := answer.Value
		traffic, wait, since := "", "", ""
		if s.Traffic != nil && !routesAreBack(s) {
			traffic = fmt.Sprintf("%d%%", s.Traffic.CanaryWeight)
			if len(s.Traffic.Matches) > 0 {
				traffic = "by match"
			}
		}
		if s.WaitingFor != nil {
			wait, since = waitInList(s.Phase, s.WaitingFor.Kind), a.Age(s.WaitingFor.Since)
		}
		table.Add(keyOf(s), string(s.Style), string(s.Phase), fmt.Sprintf("%d/%d", s.CurrentStepIndex, len(s.Steps)), render.OrDash(traffic),
			fmt.Sprint(s.CanaryReplicas), fmt.Sprint(s.CanaryReadyReplicas), fmt.Sprint(s.Replicas), render.OrDash(wait), render.OrDash(since))
	}
	a.Printf(a.Out, "%s", table)
	return nil
}

func readOne(ctx context.Context, api *client.Client, n app.Name) (apiclient.Reply[client.Rollout], error) {
	return apiclient.Read[client.Rollout](api.GetRollout(ctx, n.Namespace, n.Name, &client.GetRolloutParams{Party: n.PartyParam()}))
}

func getCommand(a *app.App) *cobra.Command {
	var output string
	var where app.Place
	command := &cobra.Command{
		Use:               "get NAME",
		Short:             "Show a rollout: its steps, its split, what it waits for, who decided what",
		Args:              app.OneName("a rollout"),
		ValidArgsFunction: complete(a, &where),
		RunE: func(c *cobra.Command, args []string) error {
			name, err := where.Named(args[0])
			if err != nil {
				return err
			}
			api, err := app.Connect(c)
			if err != nil {
				return err
			}
			answer, err := readOne(c.Context(), api, name)
			if err != nil {
				return err
			}
			if done, err := a.PrintObject(output, answer.Raw); done || err != nil {
				return err
			}
			describe(a, answer.Value)
			return nil
		},
	}
	app.ClientFlags(command)
	app.OutputFlag(command, &output)
	where.Flags(command)
	return command
}

func describe(a *app.App, s rollout.Status) {
	for _, line := range Whole(a.Drawing(), s) {
		a.Printf(a.Out, "%s\n", line)
	}
	if len(s.History) > 0 {
		a.Printf(a.Out, "\nwhat was decided\n")
		for _, d := range s.History {
			a.Printf(a.Out, "  %s  %s\n", d.At.Local().Format(time.DateTime), verbLine(d))
		}
	}
	if s.Workflow != nil {
		a.Printf(a.Out, "\nworkflow %s\n", render.OneLine(strings.TrimSpace(s.Workflow.ID+"  "+s.Workflow.URL)))
	}
}

// complete completes the name of a rollout: NAME where the namespace is given, NAMESPACE/NAME otherwise.
func complete(a *app.App, where *app.Place, phases ...rollout.Phase) cobra.CompletionFunc {
	return a.Complete(func(ctx context.Context, api *client.Client) ([]string, error) {
		limit := apiclient.PageSize
		what := listed{Place: *where}
		params, err := what.params()
		if err != nil {
			return nil, err
		}
		params.Limit = &limit
		if len(phases) > 0 {
			params.Phase = &phases
		}
		page, err := apiclient.Read[client.RolloutList](api.ListRollouts(ctx, &params))
		var entries []string
		for _, r := range page.Value.Items {
			name := r.Namespace + "/" + r.Name
			if where.Namespace != "" {
				name = r.Name
			}
			entries = append(entries, name+"\t"+string(r.Phase))
		}
		return entries, err
	})
}
