package main

import (
	"fmt"
	"time"

	"slipway.io/slipway/release/serving"
)

// servingChanges tell how a serving came from one state to the next.
func servingChanges(before, now serving.View, look time.Time) []change {
	var lines []change
	tell := func(at time.Time, format string, args ...any) {
		lines = append(lines, change{at, fmt.Sprintf(format, args...)})
	}
	if op := now.Operation; op != nil && operationInWords(before) != operationInWords(now) {
		at := look
		if !op.Done {
			at = timeOr(op.StartedAt, look)
		}
		tell(at, "%s%s", operationInWords(now), because(reasonAndMessage(op.Reason, op.Message)))
	}
	for _, d := range newDecisions(before, now) {
		tell(timeOr(&d.At.Time, look), "%s", servingDecision(d))
	}
	former := map[string]serving.PartyView{}
	for _, p := range before.Parties {
		former[partyKey(p)] = p
	}
	for _, p := range now.Parties {
		if text := partyInWords(p); text != partyInWords(former[partyKey(p)]) {
			tell(look, "  %s", text)
		}
	}
	if servingInWords(before) != servingInWords(now) {
		tell(look, "%s", servingInWords(now))
	}
	return lines
}

func partyInWords(p serving.PartyView) string {
	return fmt.Sprintf("%s: %s, %s%s", partyKey(p), p.Phase, podsInWords(p), because(partyTrouble(p)))
}

func servingInWords(v serving.View) string {
	return fmt.Sprintf("serving %s is %s%s", oneLine(v.ID), servingState(v), because(reasonAndMessage(v.Reason, v.Message)))
}

// servingEpilogue is the last word on a serving, and what to do next.
func servingEpilogue(v serving.View) string {
	does := "serve"
	if v.Operation != nil && !v.Operation.Done { // a party that has not begun yet serves the version of before
		does = "serve what was asked"
	}
	text := fmt.Sprintf("%s\n%d of %s %s", servingInWords(v), v.AvailableParties, countParties(v.TotalParties), does)
	if operationFailed(v) {
		text += fmt.Sprintf("\nTo see more: slipway serving query %s\nTo try again: correct what failed, and slipway serving update -f FILE", oneLine(v.ID))
	}
	return text
}
