package serving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
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

// drawAll draws the complete serving with its endpoints, regardless of the terminal's size.
func drawAll(d render.Drawing, v serving.View) []string {
	lines := append(header(d, v), partyLines(v.Parties)...)
	if endpoints := endpointLines(v); len(endpoints) > 0 {
		lines = append(append(lines, render.Line{}), endpoints...)
	}
	if op := v.Operation; op != nil {
		lines = append(lines, follow.Footer("history", decisions(v), op.Workflow)...)
	}
	return d.Render(lines, render.Unbounded)
}

// Fit draws as much of the serving as fits into width columns and height lines. Available parties are omitted first.
func Fit(d render.Drawing, v serving.View, width, height int) []string {
	complete := func() []render.Line { return append(header(d, v), partyLines(v.Parties)...) }
	return d.Fit(width, height, complete, func() []render.Line {
		others := slices.DeleteFunc(slices.Clone(v.Parties), func(p serving.PartyView) bool {
			return p.Phase == kuscia.PhaseAvailable
		})
		lines := append(header(d, v), partyLines(others)...)
		return append(lines, render.Line{{Text: "  … and " + phrase.Count(len(v.Parties)-len(others), "party") +
			" Available", Colour: render.Dim}})
	})
}

func header(d render.Drawing, v serving.View) []render.Line {
	lines := []render.Line{
		{{Text: render.OneLine(fmt.Sprintf("serving %s of %s, generation %d", v.ID, v.Initiator, v.Generation)),
			Colour: render.Bold}},
		{{Text: state(v), Colour: colour(v.Phase)},
			{Text: render.ReasonSuffix(render.ReasonAndMessage(v.Reason, v.Message))}},
	}
	text := operationText(v)
	if op := v.Operation; op != nil && !op.Done {
		text += d.ElapsedSuffix(op.StartedAt, nil)
	}
	if v.ServedGeneration != 0 && v.ServedGeneration != v.Generation {
		text += fmt.Sprintf("; generation %d serves", v.ServedGeneration)
	}
	if text != "" {
		lines = append(lines, render.Line{{Text: strings.TrimPrefix(text, "; "), Colour: render.Dim}})
	}
	return append(append(lines, waitLines(d, v)...), render.Line{})
}

func waitLines(d render.Drawing, v serving.View) []render.Line {
	w := waitOf(v)
	if w == nil {
		return nil
	}
	hints := []render.Hint{{Command: "slipway serving approve " + render.OneLine(v.ID), Effect: "start it now"}}
	if w.Kind == serving.WaitResume {
		hints = []render.Hint{{Command: "slipway serving resume " + render.OneLine(v.ID), Effect: "continue"}}
	}
	if v.Operation.Kind == serving.KindUpdate {
		hints = append(hints, render.Hint{Command: "slipway serving stop " + render.OneLine(v.ID),
			Effect: "roll all parties back to the previous version"})
	}
	return append([]render.Line{{{Text: d.WaitingText(waitText(w), w.Since.Time, nil), Colour: render.Yellow}}},
		render.Hints(hints)...)
}

// state returns the state of a serving as text.
func state(v serving.View) string {
	state := string(v.Phase)
	if v.DeletedAt != nil {
		state += ", being deleted"
	}
	return state
}

// operationText describes the current or last operation, such as "update of generation 3 is running".
func operationText(v serving.View) string {
	op := v.Operation
	if op == nil {
		return ""
	}
	end := "is running"
	switch {
	case op.Kind == serving.KindRefuse:
		return fmt.Sprintf("generation %d was refused", op.Generation)
	case op.Done && op.Reason != "":
		end = "failed"
	case op.Done:
		end = "completed"
	}
	return fmt.Sprintf("%s of generation %d %s", render.OneLine(op.Kind), op.Generation, end)
}

var colours = map[kuscia.Phase]render.Colour{kuscia.PhaseAvailable: render.Green, kuscia.PhaseFailed: render.Red,
	kuscia.PhaseProgressing: render.Cyan, serving.DisplayedPending: render.Dim}

func colour(phase kuscia.Phase) render.Colour { return cmp.Or(colours[phase], render.Yellow) }

// partyKey returns the display name of a party: "alice", or "alice/server".
func partyKey(p serving.PartyView) string {
	return render.OneLine(serving.PartyName(kuscia.Party{DomainID: p.Domain, Role: p.Role}))
}

// podsText returns, for example, "2 of 3 available, 1 new".
func podsText(p serving.PartyView) string {
	text := fmt.Sprintf("%d of %d available", p.AvailableReplicas, p.Replicas)
	if p.UpdatedReplicas != p.Replicas {
		text += fmt.Sprintf(", %d new", p.UpdatedReplicas)
	}
	return text
}

func partyLines(parties []serving.PartyView) []render.Line {
	var columns render.Columns
	for _, p := range parties {
		columns.Widen(partyKey(p), string(p.Phase), podsText(p))
	}
	var lines []render.Line
	for _, p := range parties {
		lines = append(lines, columns.Line("  ", render.Span{Text: partyKey(p)},
			render.Span{Text: string(p.Phase), Colour: colour(p.Phase)},
			render.Span{Text: podsText(p)}, render.Span{Text: partyProblem(p), Colour: render.Dim}))
	}
	return lines
}

// partyProblem returns why a party is not serving.
func partyProblem(p serving.PartyView) string {
	if p.Queue == "" {
		return "unknown party"
	}
	return render.ReasonAndMessage(p.Reason, p.Message)
}

func endpointLines(v serving.View) []render.Line {
	if !slices.ContainsFunc(v.Parties, func(p serving.PartyView) bool { return len(p.Endpoints) > 0 }) {
		return nil
	}
	rows := render.NewTable("PARTY", "PORT", "SCOPE", "ENDPOINT", "LISTENS ON")
	for _, p := range v.Parties {
		for _, e := range p.Endpoints {
			rows.Add(partyKey(p), e.PortName, e.Scope, e.Endpoint, fmt.Sprint(e.Port))
		}
	}
	var lines []render.Line
	for row := range strings.Lines(rows.String()) {
		lines = append(lines, render.Line{{Text: "  " + strings.TrimRight(row, "\n")}})
	}
	return lines
}

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
