package serving

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/audit"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/serving"
)

const exitCodes = `  0    Available: all parties run the requested version with all replicas
  1    Failed or rejected, or the command itself failed
  2    wrong usage
  3    the update failed and was rolled back: the previous version is serving
  4    a party is unreachable, with --exit-on-interrupted
  5    it waits for user action (approval, resume), with --exit-on-paused
  124  --timeout passed
  130  interrupted by Ctrl-C; the serving continues`

var watchHelp = follow.FlagTexts{Noun: "serving", Until: "until it is Available or Failed",
	Interrupted: "a party is unreachable", Paused: "it waits for user action"}

// exitCodeOf returns the exit code of the watch in this state of the serving; ok is false while the watch continues. A
// running operation may still change everything, except when a rollback fails: it is retried, but the watch does not
// wait for it.
func exitCodeOf(o follow.Options, v serving.View) (code int, ok bool) {
	op := v.Operation
	switch {
	case o.ExitOnInterrupted && slices.ContainsFunc(v.Parties, func(p serving.PartyView) bool {
		return p.Unreachable != ""
	}):
		return app.ExitInterrupted, true
	case v.DeletedAt != nil, op == nil, op.Generation < v.Generation:
		return 0, false
	case v.Phase == kuscia.PhaseFailed:
		return app.ExitFailure, true
	case o.ExitOnPaused && op.WaitingFor != nil:
		return app.ExitPaused, true
	case !op.Done:
		return 0, false
	case v.Reason == serving.ReasonUpdateRolledBack:
		return app.ExitStopped, true
	case operationFailed(v):
		return app.ExitFailure, true
	}
	return app.ExitOK, v.Phase == kuscia.PhaseAvailable
}

// operationFailed reports whether the last operation failed and its failure was not fixed since.
func operationFailed(v serving.View) bool {
	op := v.Operation
	return op != nil && op.Done && op.Reason != "" && v.Reason != ""
}

func watchCommand(n *servings) *cobra.Command {
	return n.WatchCommand("the parties", "The command also waits for unreachable parties and for approvals, unless flags "+
		"say otherwise. A serving that is being deleted is watched until it is deleted.",
		"serving-01 --timeout 15m --exit-on-interrupted",
		func(ctx context.Context, api *client.Client, id string, o follow.Options) error {
			return watchOne(ctx, n, api, id, o)
		})
}

func watchOne(ctx context.Context, n *servings, api *client.Client, id string, options follow.Options) error {
	deleted := false
	w := n.Watched(api, id, options)
	w.ExitCode = func(v serving.View) (int, bool) {
		deleted = v.DeletedAt != nil
		return exitCodeOf(options, v)
	}
	err := follow.Watch(ctx, n.App, w)
	var problem *apiclient.ProblemError
	if deleted && errors.As(err, &problem) && problem.Status == http.StatusNotFound {
		n.App.Printf(n.App.Err, "serving %s was deleted\n", id)
		return nil
	}
	return err
}

func changes(before, now serving.View, look time.Time) []follow.Change {
	var lines follow.Changes
	if op := now.Operation; op != nil && operationText(before) != operationText(now) {
		at := look
		if !op.Done {
			at = render.TimeOrDefault(op.StartedAt, look)
		}
		lines.Add(at, "%s%s", operationText(now), render.ReasonSuffix(render.ReasonAndMessage(op.Reason, op.Message)))
	}
	lines.AddDecisions(slices.DeleteFunc(decisions(now), func(d audit.Entry) bool {
		return slices.Contains(decisions(before), d)
	}), look)
	former := map[string]serving.PartyView{}
	for _, p := range before.Parties {
		former[partyKey(p)] = p
	}
	for _, p := range now.Parties {
		if text := partyText(p); text != partyText(former[partyKey(p)]) {
			lines.Add(look, "  %s", text)
		}
	}
	if stateText(before) != stateText(now) {
		lines.Add(look, "%s", stateText(now))
	}
	return lines
}

func decisions(v serving.View) (all []audit.Entry) {
	if v.Operation == nil {
		return nil
	}
	for _, d := range v.Operation.History {
		all = append(all, audit.Entry{At: d.At.Time, Actor: d.Actor, Via: d.Via, Verb: audit.Verb(d.Verb),
			Party: d.Party, Reason: d.Reason, Outcome: audit.Outcome(d.Outcome), Message: d.Message})
	}
	return all
}

func partyText(p serving.PartyView) string {
	return fmt.Sprintf("%s: %s, %s%s", partyKey(p), p.Phase, podsText(p), render.ReasonSuffix(partyProblem(p)))
}

func stateText(v serving.View) string {
	return fmt.Sprintf("serving %s is %s%s", render.OneLine(v.ID), state(v),
		render.ReasonSuffix(render.ReasonAndMessage(v.Reason, v.Message)))
}

func summary(v serving.View) string {
	does := "serving"
	if v.Operation != nil && !v.Operation.Done { // a party that has not started yet serves the previous version
		does = "serving the requested version"
	}
	text := fmt.Sprintf("%s\n%d of %s %s", stateText(v), v.AvailableParties, phrase.Count(v.TotalParties, "party"),
		does)
	if operationFailed(v) {
		text += fmt.Sprintf("\nFor details: slipway serving get %s\nTo retry: fix the cause, and run slipway serving "+
			"update -f FILE", render.OneLine(v.ID))
	}
	return text
}
