// Package rollout implements `slipway rollout`: start, watch, approve, roll back.
package rollout

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/noun"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/strictyaml"
)

type rollouts = noun.Noun[client.RolloutSummary, client.Rollout]

// Command returns `slipway rollout`.
func Command(a *app.App) *cobra.Command {
	n := newNoun(a)
	command := &cobra.Command{
		Use: n.Command, Aliases: []string{"rollouts", "ro"},
		Short: "Release one workload step by step: canary or blue-green",
	}
	command.AddCommand(startCommand(n), validateCommand(a), listCommand(n),
		n.GetCommand("Show a rollout: its steps, split, wait and history"),
		watchCommand(n), waitCommand(n), historyCommand(n), undoCommand(n))
	for _, v := range verbs(a) {
		command.AddCommand(n.VerbCommand(v, func(s client.Rollout) string {
			return fmt.Sprintf("rollout %s is %s%s", keyOf(s), s.Phase, render.ReasonSuffix(s.Reason))
		}))
	}
	return command
}

var phases = []rollout.Phase{rollout.PhaseProgressing, rollout.PhaseFailed, rollout.PhaseHealthy,
	rollout.PhaseRolledBack,
	rollout.PhaseCancelled}

func newNoun(a *app.App) *rollouts {
	var where app.ScopeFlags
	return &rollouts{
		App: a, Command: "rollout", Name: "rollout", Argument: "NAME", Scope: &where, Flags: where.Flags,
		Collection: "rollouts", Example: "shop/web",
		Key:    func(r client.RolloutSummary) string { return r.Namespace + "/" + r.Name },
		Note:   func(r client.RolloutSummary) string { return string(r.Phase) },
		Titles: []string{"NAME", "STYLE", "PHASE", "WAITS FOR", "SINCE", "AGE", "CHANGE", "REASON"},
		Row: func(r client.RolloutSummary) []string {
			wait, since := waitColumns(a, r.Phase, r.WaitingFor)
			return []string{nameOfSummary(r).String(), string(r.Style), string(r.Phase),
				wait, since, a.Age(r.CreatedAt), r.Summary, r.Reason}
		},
		Empty: "No rollouts found.",
		Describe: func(_ string, s client.Rollout) error {
			a.Draw(DrawAll(a.Drawing(), s, follow.Footer("history", s.History, s.Workflow)...))
			return nil
		},
		Release: noun.Release[rollout.Status]{Flags: watchHelp, ExitCodes: exitCodes, Ended: ended, ExitCode: exitCodeOf,
			Renderer: follow.Renderer[rollout.Status]{Fit: Fit, Changes: Changes, Summary: Summary}},
	}
}

func listCommand(n *rollouts) *cobra.Command {
	var inPhase, waitsFor []string
	var steps bool
	command := n.ListCommand("List the rollouts, newest first, each with its current or last release", noun.ListOptions{
		Limited: true, Check: func() error {
			inPhases, err := app.ParseOneOf("phase", inPhase, phases)
			waits, wrong := app.ParseOneOf("waiting-for", waitsFor, rollout.WaitKinds)
			n.Filter = url.Values{"phase": inPhases, "waitingFor": waits}
			if steps {
				showSteps(n)
			}
			return cmp.Or(err, wrong)
		}})
	command.Example = `  slipway rollout list --waiting-for approval
  slipway rollout list -n shop --steps`
	f := command.Flags()
	f.StringSliceVar(&inPhase, "phase", nil, "list only rollouts in this `phase`; can be repeated: "+
		strictyaml.List(phases))
	f.StringSliceVar(&waitsFor, "waiting-for", nil,
		"list only rollouts that wait for this `kind` of event; can be repeated: "+strictyaml.List(rollout.WaitKinds))
	f.BoolVar(&steps, "steps", false, "also show step, traffic and pods; needs one request per rollout")
	app.FlagChoices(command, "phase", phases...)
	app.FlagChoices(command, "waiting-for", rollout.WaitKinds...)
	return command
}

// waitColumns returns what a rollout waits for and since when, or "". A failed rollout waits for a retry: it cannot be
// resumed.
func waitColumns(a *app.App, phase rollout.Phase, w *rollout.WaitingFor) (wait, since string) {
	switch {
	case w == nil:
		return "", ""
	case phase == rollout.PhaseFailed && w.Kind == rollout.WaitResume:
		return string(rollout.VerbRetry), a.Age(w.Since)
	}
	return string(w.Kind), a.Age(w.Since)
}

func nameOfSummary(r client.RolloutSummary) app.ObjectName {
	return app.ObjectName{Party: r.Party, Namespace: r.Namespace, Name: r.Name}
}

// showSteps adds columns to the list for which each rollout must be read.
func showSteps(n *rollouts) {
	statuses := map[app.ObjectName]rollout.Status{}
	n.ReadExtra = func(ctx context.Context, api *client.Client, items []client.RolloutSummary) error {
		for _, item := range items {
			of := *n
			of.Scope = &app.ScopeFlags{Party: item.Party}
			answer, err := of.Read(ctx, api, n.Key(item))
			if err != nil {
				return err
			}
			statuses[nameOfSummary(item)] = answer.Value
		}
		return nil
	}
	n.Titles = []string{"NAME", "STYLE", "PHASE", "STEP", "TRAFFIC", "NEW", "READY", "OF", "WAITS FOR", "SINCE"}
	n.Row = func(item client.RolloutSummary) []string {
		s := statuses[nameOfSummary(item)]
		traffic := ""
		wait, since := waitColumns(n.App, s.Phase, s.WaitingFor)
		if s.Traffic != nil && !routesRestored(s) {
			traffic = fmt.Sprintf("%d%%", s.Traffic.CanaryWeight)
			if len(s.Traffic.Matches) > 0 {
				traffic = "by match"
			}
		}
		return []string{keyOf(s), string(s.Style), string(s.Phase),
			fmt.Sprintf("%d/%d", s.CurrentStepIndex, len(s.Steps)), traffic,
			fmt.Sprint(s.CanaryReplicas), fmt.Sprint(s.CanaryReadyReplicas), fmt.Sprint(s.Replicas), wait, since}
	}
}

func historyCommand(n *rollouts) *cobra.Command {
	a := n.App
	command := noun.HistoryCommand(n, "releases", nil,
		[]string{"REVISION", "STARTED", "PHASE", "TOOK", "BY", "IMAGES", "POD TEMPLATE", "REPLACED", "WHY"},
		func(r client.RolloutRelease) []string {
			s := r.Rollout
			return []string{numberOf(s.Revision), render.Clock(s.CreatedAt, a.Now()), string(s.Phase),
				a.Elapsed(&s.CreatedAt, s.FinishedAt), r.Actor,
				strategy.ImageList(s.Images), s.CanaryRevision, replaced(r), reasonOf(r)}
		})
	command.Short = "List the releases of a rollout, newest first"
	command.Long =
		`List the current and past releases of a rollout, newest first. REVISION is the number of a release's version for
"slipway rollout undo --to-revision", and REPLACED is the version that it replaced. With -o json or yaml, each release
is printed completely, with its history of decisions.`
	command.Example = `  slipway rollout history shop/web --limit 5`
	return command
}

func numberOf(revision int64) string {
	if revision == 0 {
		return ""
	}
	return strconv.FormatInt(revision, 10)
}

// replaced returns the version that a release replaced, such as "2: app=registry/web:1".
func replaced(r client.RolloutRelease) string {
	images := strategy.ImageList(r.Rollout.StableImages)
	if number := numberOf(r.Replaced); number != "" {
		return strings.TrimSuffix(number+": "+images, ": ")
	}
	return images
}

// reasonOf returns the reason that the user gave, preceded by what an undo restored.
func reasonOf(r client.RolloutRelease) string {
	if r.Rollout.Undo == nil {
		return r.Reason
	}
	return r.Rollout.Undo.String() + render.ReasonSuffix(r.Reason)
}
