package main

import (
	"fmt"
	"slices"

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

// servingWaitInWords reads "an approval of bob".
func servingWaitInWords(w *kuscia.WaitingFor) string {
	switch w.Kind {
	case serving.WaitApproval:
		return oneLine("an approval of " + w.Party)
	case serving.WaitResume:
		return "somebody to resume it"
	}
	return oneLine(w.Kind)
}

// servingWaitLines say whom the serving waits for, and what that person can do.
func (d drawing) servingWaitLines(v serving.View) []line {
	w := waitOf(v)
	if w == nil {
		return nil
	}
	since := w.Since.Time
	lines := []line{{{text: fmt.Sprintf("waits for %s since %s (%s)", servingWaitInWords(w), clock(since, d.now()), shortDuration(d.now().Sub(since))), colour: yellow}}}
	hints := []hint{{"slipway serving approve " + oneLine(v.ID), "have it begin"}}
	if w.Kind == serving.WaitResume {
		hints = []hint{{"slipway serving resume " + oneLine(v.ID), "go on"}}
	}
	if v.Operation.Kind == serving.KindUpdate {
		hints = append(hints, hint{"slipway serving stop " + oneLine(v.ID), "every party goes back to the version of before"})
	}
	width := 0
	for _, h := range hints {
		width = max(width, len(h.command))
	}
	for _, h := range hints {
		lines = append(lines, line{{text: "  " + padded(h.command, width+3), colour: bold}, {text: h.effect, colour: dim}})
	}
	return lines
}

// servingDecision reads "approve of bob by li via cli, accepted: … (reason given: …)".
func servingDecision(d kuscia.AuditEntry) string {
	what := oneLine(d.Verb)
	if d.Party != "" {
		what += " of " + oneLine(d.Party)
	}
	text := fmt.Sprintf("%s by %s via %s, %s: %s", what, oneLine(d.Actor), oneLine(d.Via), oneLine(d.Outcome), oneLine(d.Message))
	if d.Reason != "" {
		text += fmt.Sprintf(" (reason given: %s)", oneLine(d.Reason))
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
			return old.At.Equal(&d.At) && old.Key == d.Key && servingDecision(old) == servingDecision(d)
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
