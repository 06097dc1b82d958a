package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/release/rollout"
)

func (a *app) rolloutCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "rollout",
		Aliases: []string{"rollouts", "ro"},
		Short:   "Rollouts: canary and blue-green releases of one workload, step by step",
	}
	command.AddCommand(a.rolloutStartCommand(), a.rolloutValidateCommand(), a.rolloutListCommand(), a.rolloutGetCommand(), a.rolloutWatchCommand(),
		a.rolloutWaitCommand(), a.rolloutHistoryCommand())
	command.AddCommand(a.rolloutVerbCommands()...)
	return command
}

// rolloutPhases are the phases in the order in which people read them.
var rolloutPhases = []rollout.Phase{rollout.PhaseProgressing, rollout.PhaseFailed, rollout.PhaseHealthy, rollout.PhaseRolledBack, rollout.PhaseCancelled}

// waitKinds are what a rollout can wait for.
var waitKinds = []rollout.WaitKind{rollout.WaitApproval, rollout.WaitTimer, rollout.WaitPods, rollout.WaitTraffic, rollout.WaitParty, rollout.WaitDrift,
	rollout.WaitResume}

// listed says which rollouts are listed, and how.
type listed struct {
	place
	phases, waits []string
	most          int
	steps         bool
}

func (a *app) rolloutListCommand() *cobra.Command {
	var output string
	var what listed
	command := &cobra.Command{
		Use:   "list",
		Short: "List the rollouts, newest first: the release that runs of each, or else its last one",
		Example: `  slipway rollout list --waiting-for approval
  slipway rollout list -n shop --steps`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.listRollouts(c, what, output) },
	}
	clientFlags(command)
	outputFlag(command, &output)
	what.flags(command)
	command.Flag("namespace").Usage = "only rollouts of this `namespace`"
	command.Flag("party").Usage = "only rollouts of this `party`"
	command.Flags().StringSliceVar(&what.phases, "phase", nil, "only rollouts in this `phase`; may be repeated: "+joined(rolloutPhases))
	command.Flags().StringSliceVar(&what.waits, "waiting-for", nil, "only rollouts that wait for this `kind` of thing; may be repeated: "+joined(waitKinds))
	command.Flags().IntVar(&what.most, "limit", 0, "at most `n` rollouts; 0: all")
	command.Flags().BoolVar(&what.steps, "steps", false, "also show step, traffic and pods; that takes one request for each rollout")
	_ = command.RegisterFlagCompletionFunc("phase", cobra.FixedCompletions(strings.Split(joined(rolloutPhases), ", "), cobra.ShellCompDirectiveNoFileComp))
	_ = command.RegisterFlagCompletionFunc("waiting-for", cobra.FixedCompletions(strings.Split(joined(waitKinds), ", "), cobra.ShellCompDirectiveNoFileComp))
	return command
}

// joined lists names for people.
func joined[T ~string](values []T) string {
	var names []string
	for _, v := range values {
		names = append(names, string(v))
	}
	return strings.Join(names, ", ")
}

// parseOneOf reads values in any case; nil when there are none.
func parseOneOf[T ~string](flag string, names []string, known []T) (*[]T, error) {
	if len(names) == 0 {
		return nil, nil
	}
	var values []T
	for _, name := range names {
		n := slices.IndexFunc(known, func(v T) bool { return strings.EqualFold(string(v), name) })
		if n < 0 {
			return nil, usagef("--%s %q is none of %s", flag, name, joined(known))
		}
		values = append(values, known[n])
	}
	return &values, nil
}

// params are the filters as the API takes them.
func (l listed) params() (client.ListRolloutsParams, error) {
	params := client.ListRolloutsParams{}
	if l.most < 0 {
		return params, usagef("--limit %d is negative: 0 lists all rollouts", l.most)
	}
	var err error
	if params.Phase, err = parseOneOf("phase", l.phases, rolloutPhases); err != nil {
		return params, err
	}
	if params.WaitingFor, err = parseOneOf("waiting-for", l.waits, waitKinds); err != nil {
		return params, err
	}
	if l.namespace != "" {
		params.Namespace = &l.namespace
	}
	if l.party != "" {
		params.Party = &l.party
	}
	return params, nil
}

func (a *app) listRollouts(c *cobra.Command, what listed, output string) error {
	params, err := what.params()
	if err != nil {
		return err
	}
	api, err := connect(c)
	if err != nil {
		return err
	}
	rollouts, err := allPages(what.most, func(limit int, cursor *string) ([]client.RolloutSummary, string, error) {
		params.Limit, params.Cursor = &limit, cursor
		page, err := read[client.RolloutList](api.ListRollouts(c.Context(), &params))
		return page.value.Items, page.value.NextCursor, err
	})
	if err != nil {
		return err
	}
	if done, err := a.printObject(output, client.RolloutList{Items: rollouts}); done || err != nil {
		return err
	}
	if len(rollouts) == 0 {
		a.printf(a.err, "There are no such rollouts.\n")
		return nil
	}
	if what.steps {
		return a.printSteps(c.Context(), api, rollouts)
	}
	table := newTable("NAME", "STYLE", "PHASE", "WAITS FOR", "SINCE", "AGE", "REASON")
	for _, r := range rollouts {
		since, waits := "", ""
		if w := r.WaitingFor; w != nil {
			since, waits = a.age(w.Since), string(w.Kind)
		}
		reason := r.Reason
		if reason == "" {
			reason = r.Summary
		}
		table.add(rolloutKey(r.Party, r.Namespace, r.Name), styleName(r.Style), string(r.Phase), orDash(waits), orDash(since),
			a.age(r.CreatedAt), orDash(clipped(oneLine(reason), 60)))
	}
	a.printf(a.out, "%s", table)
	return nil
}

// printSteps reads each rollout for what a list does not know.
func (a *app) printSteps(ctx context.Context, api *client.Client, rollouts []client.RolloutSummary) error {
	table := newTable("NAME", "STYLE", "PHASE", "STEP", "TRAFFIC", "NEW", "READY", "OF", "WAITS FOR", "SINCE")
	for _, summary := range rollouts {
		answer, err := readRollout(ctx, api, rolloutName{summary.Party, summary.Namespace, summary.Name})
		if err != nil {
			return err
		}
		s := answer.value
		traffic, wait, since := "", "", ""
		if s.Traffic != nil && !routesAreBack(s) {
			traffic = fmt.Sprintf("%d%%", s.Traffic.CanaryWeight)
			if len(s.Traffic.Matches) > 0 {
				traffic = "by match"
			}
		}
		if s.WaitingFor != nil {
			wait, since = string(s.WaitingFor.Kind), a.age(s.WaitingFor.Since)
		}
		table.add(keyOf(s), styleName(s.Style), string(s.Phase), fmt.Sprintf("%d/%d", s.CurrentStepIndex, len(s.Steps)), orDash(traffic),
			fmt.Sprint(s.CanaryReplicas), fmt.Sprint(s.CanaryReadyReplicas), fmt.Sprint(s.Replicas), orDash(wait), orDash(since))
	}
	a.printf(a.out, "%s", table)
	return nil
}

func readRollout(ctx context.Context, api *client.Client, n rolloutName) (reply[client.Rollout], error) {
	return read[client.Rollout](api.GetRollout(ctx, n.namespace, n.name, &client.GetRolloutParams{Party: n.partyParam()}))
}

func (a *app) rolloutGetCommand() *cobra.Command {
	var output string
	var where place
	command := &cobra.Command{
		Use:               "get NAME",
		Short:             "Show a rollout: its steps, its split, what it waits for, who decided what",
		Args:              oneName("a rollout"),
		ValidArgsFunction: a.completeRollouts(&where),
		RunE: func(c *cobra.Command, args []string) error {
			name, err := where.named(args[0])
			if err != nil {
				return err
			}
			api, err := connect(c)
			if err != nil {
				return err
			}
			answer, err := readRollout(c.Context(), api, name)
			if err != nil {
				return err
			}
			if done, err := a.printObject(output, answer.raw); done || err != nil {
				return err
			}
			a.describeRollout(answer.value)
			return nil
		},
	}
	clientFlags(command)
	outputFlag(command, &output)
	where.flags(command)
	return command
}

func (a *app) describeRollout(s rollout.Status) {
	for _, line := range a.drawing().wholeRollout(s) {
		a.printf(a.out, "%s\n", line)
	}
	if len(s.History) > 0 {
		a.printf(a.out, "\nwhat was decided\n")
		for _, d := range s.History {
			a.printf(a.out, "  %s  %s\n", d.At.Local().Format(time.DateTime), verbLine(d))
		}
	}
	if s.Workflow != nil {
		a.printf(a.out, "\nworkflow %s\n", oneLine(strings.TrimSpace(s.Workflow.ID+"  "+s.Workflow.URL)))
	}
}

// completeRollouts completes the name of a rollout: NAME where the namespace is given, NAMESPACE/NAME otherwise.
func (a *app) completeRollouts(where *place, phases ...rollout.Phase) cobra.CompletionFunc {
	return a.complete(func(ctx context.Context, api *client.Client) ([]string, error) {
		limit := pageSize
		what := listed{place: *where}
		params, err := what.params()
		if err != nil {
			return nil, err
		}
		params.Limit = &limit
		if len(phases) > 0 {
			params.Phase = &phases
		}
		page, err := read[client.RolloutList](api.ListRollouts(ctx, &params))
		var entries []string
		for _, r := range page.value.Items {
			name := r.Namespace + "/" + r.Name
			if where.namespace != "" {
				name = r.Name
			}
			entries = append(entries, name+"\t"+string(r.Phase))
		}
		return entries, err
	})
}
