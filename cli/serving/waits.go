package serving

import (
	"fmt"
	"slices"

	"slipway.io/slipway/cli/render"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// waitOf is the person whom a serving's operation waits for; nil when for nobody.
func waitOf(v serving.View) *kuscia.WaitingFor {
	if v.Operation == nil {
		return nil
	}
	return v.Operation.WaitingFor
}

// waitInWords reads "an approval of bob".
func waitInWords(w *kuscia.WaitingFor) string {
	switch w.Kind {
	case serving.WaitApproval:
		return render.OneLine("an approval of " + w.Party)
	case serving.WaitResume:
		return "somebody to resume it"
	}
	return render.OneLine(w.Kind)
}

// waitLines say whom the serving waits for, and what that person can do.
func waitLines(d render.Drawing, v serving.View) []render.Line {
	w := waitOf(v)
	if w == nil {
		return nil
	}
	since := w.Since.Time
	lines := []render.Line{{{Text: fmt.Sprintf("waits for %s since %s (%s)", waitInWords(w), render.Clock(since, d.Now()), render.ShortDuration(d.Now().Sub(since))), Colour: render.Yellow}}}
	hints := []render.Hint{{Command: "slipway serving approve " + render.OneLine(v.ID), Effect: "have it begin"}}
	if w.Kind == serving.WaitResume {
		hints = []render.Hint{{Command: "slipway serving resume " + render.OneLine(v.ID), Effect: "go on"}}
	}
	if v.Operation.Kind == serving.KindUpdate {
		hints = append(hints, render.Hint{Command: "slipway serving stop " + render.OneLine(v.ID), Effect: "every party goes back to the version of before"})
	}
	width := 0
	for _, h := range hints {
		width = max(width, len(h.Command))
	}
	for _, h := range hints {
		lines = append(lines, render.Line{{Text: "  " + render.Padded(h.Command, width+3), Colour: render.Bold}, {Text: h.Effect, Colour: render.Dim}})
	}
	return lines
}

// decisionLine reads "approve of bob by li via cli, accepted: … (reason given: …)".
func decisionLine(d kuscia.AuditEntry) string {
	what := render.OneLine(d.Verb)
	if d.Party != "" {
		what += " of " + render.OneLine(d.Party)
	}
	text := fmt.Sprintf("%s by %s via %s, %s: %s", what, render.OneLine(d.Actor), render.OneLine(d.Via), render.OneLine(d.Outcome), render.OneLine(d.Message))
	if d.Reason != "" {
		text += fmt.Sprintf(" (reason given: %s)", render.OneLine(d.Reason))
	}
	return text
}

// newDecisions are those that were not there before.
func newDecisions(before, now serving.View) []kuscia.AuditEntry {
	if now.Operation == nil {
		return nil
	}
	known := func(d kuscia.AuditEntry) bool {
		return before.Operation != nil && slices.ContainsFunc(before.Operation.History, func(old kuscia.AuditEntry) bool {
			return old.At.Equal(&d.At) && old.Key == d.Key && decisionLine(old) == decisionLine(d)
		})
	}
	var fresh []kuscia.AuditEntry
	for _, d := range now.Operation.History {
		if !known(d) {
			fresh = append(fresh, d)
		}
	}
	return fresh
}
