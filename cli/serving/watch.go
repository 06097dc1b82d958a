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
	"slipway.io/slipway/release/serving"
)

const exitCodes = `  0    Available: every party runs what was asked, with all replicas
  1    Failed, or refused, or the command itself failed
  2    wrong usage
  3    the update failed and was taken back: the version before it serves
  4    a party is out of reach, with --exit-on-interrupted
  5    it waits for a person (approval, resume), with --exit-on-paused
  124  --timeout passed
  130  ended by Ctrl-C; the serving goes on`

var words = follow.Words{Noun: "serving", End: "until it is Available or has Failed", Interrupted: "a party is out of reach",
	Paused: "it waits for a person"}

// ends says with which exit code the watch ends in this state of the serving; ok is false while it goes on. What is under way may
// still change everything, but for a way back that fails: it is tried again, and nobody should wait for it.
func ends(o follow.Options, v serving.View) (code int, ok bool) {
	op := v.Operation
	switch {
	case o.ExitOnInterrupted && slices.ContainsFunc(v.Parties, func(p serving.PartyView) bool { return p.Unreachable != "" }):
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

// operationFailed says that the last operation has failed, and that this was not put right since.
func operationFailed(v serving.View) bool {
	op := v.Operation
	return op != nil && op.Done && op.Reason != "" && v.Reason != ""
}

func watchCommand(n *servings) *cobra.Command {
	command := n.WatchCommand(`Follow a serving until it is Available or has Failed. A terminal shows the parties as
they change; a pipe gets one line for each change,
and -o json or yaml the whole serving at each change. A lost connection is opened again, however long that takes.

A party that is away, or a person who is to approve, is waited for, unless told otherwise. A serving that is being deleted is followed until
it is gone. The exit code says how it ended:

`+exitCodes, words, func(ctx context.Context, api *client.Client, id string, o follow.Options) error {
		return watchOne(ctx, n.App, api, id, o)
	})
	command.Example = `  slipway serving watch serving-01
  slipway serving watch serving-01 --timeout 15m --exit-on-interrupted`
	return command
}

func watchOne(ctx context.Context, a *app.App, api *client.Client, id string, options follow.Options) error {
	deleted := false
	err := follow.Watch(ctx, a, follow.Watched[serving.View]{
		Called: "serving " + id, Again: "slipway serving watch " + id,
		Read: func(ctx context.Context) (serving.View, error) {
			answer, err := apiclient.Read[serving.View](api.GetServing(ctx, id))
			return answer.Value, err
		},
		Open: func(ctx context.Context, last *string) (*http.Response, error) {
			return api.WatchServing(ctx, id, &client.WatchServingParams{LastEventID: last})
		},
		// A serving has no end of its own: somebody may change it at any time.
		Over: func(serving.View) bool { return false },
		Ends: func(v serving.View) (int, bool) {
			deleted = v.DeletedAt != nil
			return ends(options, v)
		},
		Timeout:  options.Timeout,
		Portrait: follow.Portrait[serving.View]{Fit: Fit, Changes: changes, Epilogue: epilogue},
	})
	var problem *apiclient.ProblemError
	if deleted && errors.As(err, &problem) && problem.Status == http.StatusNotFound {
		a.Printf(a.Err, "serving %s is gone\n", id)
		return nil
	}
	return err
}

func changes(before, now serving.View, look time.Time) []follow.Change {
	var lines follow.Changes
	if op := now.Operation; op != nil && operationInWords(before) != operationInWords(now) {
		at := look
		if !op.Done {
			at = render.TimeOr(op.StartedAt, look)
		}
		lines.Tell(at, "%s%s", operationInWords(now), render.Because(render.ReasonAndMessage(op.Reason, op.Message)))
	}
	lines.Decisions(slices.DeleteFunc(decisions(now), func(d audit.Entry) bool { return slices.Contains(decisions(before), d) }), look)
	former := map[string]serving.PartyView{}
	for _, p := range before.Parties {
		former[partyKey(p)] = p
	}
	for _, p := range now.Parties {
		if text := partyInWords(p); text != partyInWords(former[partyKey(p)]) {
			lines.Tell(look, "  %s", text)
		}
	}
	if inWords(before) != inWords(now) {
		lines.Tell(look, "%s", inWords(now))
	}
	return lines
}

func decisions(v serving.View) (all []audit.Entry) {
	if v.Operation == nil {
		return nil
	}
	for _, d := range v.Operation.History {
		all = append(all, audit.Entry{At: d.At.Time, Actor: d.Actor, Via: d.Via, Verb: audit.Verb(d.Verb), Party: d.Party, Reason: d.Reason,
			Outcome: audit.Outcome(d.Outcome), Message: d.Message})
	}
	return all
}

func partyInWords(p serving.PartyView) string {
	return fmt.Sprintf("%s: %s, %s%s", partyKey(p), p.Phase, podsInWords(p), render.Because(partyTrouble(p)))
}

func inWords(v serving.View) string {
	return fmt.Sprintf("serving %s is %s%s", render.OneLine(v.ID), state(v), render.Because(render.ReasonAndMessage(v.Reason, v.Message)))
}

func epilogue(v serving.View) string {
	does := "serve"
	if v.Operation != nil && !v.Operation.Done { // a party that has not begun yet serves the version of before
		does = "serve what was asked"
	}
	text := fmt.Sprintf("%s\n%d of %s %s", inWords(v), v.AvailableParties, render.Count(v.TotalParties, "party"), does)
	if operationFailed(v) {
		text += fmt.Sprintf("\nTo see more: slipway serving get %s\nTo try again: correct what failed, and slipway serving update -f "+
			"FILE", render.OneLine(v.ID))
	}
	return text
}
