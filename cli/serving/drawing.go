package serving

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/render"
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
		lines = append(lines, follow.Footer(decisions(v), op.RefusalsDropped, op.Workflow)...)
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
