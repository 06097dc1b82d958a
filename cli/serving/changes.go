package serving

import (
	"fmt"
	"time"

	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/serving"
)

// changes tell how a serving came from one state to the next.
func changes(before, now serving.View, look time.Time) []follow.Change {
	var lines []follow.Change
	tell := func(at time.Time, format string, args ...any) {
		lines = append(lines, follow.Change{At: at, Text: fmt.Sprintf(format, args...)})
	}
	if op := now.Operation; op != nil && operationInWords(before) != operationInWords(now) {
		at := look
		if !op.Done {
			at = render.TimeOr(op.StartedAt, look)
		}
		tell(at, "%s%s", operationInWords(now), render.Because(render.ReasonAndMessage(op.Reason, op.Message)))
	}
	for _, d := range newDecisions(before, now) {
		tell(render.TimeOr(&d.At.Time, look), "%s", decisionLine(d))
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
	if inWords(before) != inWords(now) {
		tell(look, "%s", inWords(now))
	}
	return lines
}

func partyInWords(p serving.PartyView) string {
	return fmt.Sprintf("%s: %s, %s%s", partyKey(p), p.Phase, podsInWords(p), render.Because(partyTrouble(p)))
}

func inWords(v serving.View) string {
	return fmt.Sprintf("serving %s is %s%s", render.OneLine(v.ID), state(v), render.Because(render.ReasonAndMessage(v.Reason, v.Message)))
}

// epilogue is the last word on a serving, and what to do next.
func epilogue(v serving.View) string {
	does := "serve"
	if v.Operation != nil && !v.Operation.Done { // a party that has not begun yet serves the version of before
		does = "serve what was asked"
	}
	text := fmt.Sprintf("%s\n%d of %s %s", inWords(v), v.AvailableParties, countParties(v.TotalParties), does)
	if operationFailed(v) {
		text += fmt.Sprintf("\nTo see more: slipway serving get %s\nTo try again: correct what failed, and slipway serving update -f FILE", render.OneLine(v.ID))
	}
	return text
}
