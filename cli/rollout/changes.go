package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
)

// Changes tell how a rollout came from one state to the next, in the order of time.
func Changes(before, now rollout.Status, look time.Time) []follow.Change {
	var lines []follow.Change
	for _, d := range now.History[min(len(before.History), len(now.History)):] {
		lines = append(lines, follow.Change{At: render.TimeOr(&d.At, look), Text: verbLine(d)})
	}
	lines = append(lines, stepChanges(before, now, look)...)
	if before.Phase != now.Phase || before.Reason != now.Reason {
		at := look
		if now.Phase.Final() {
			at = render.TimeOr(now.FinishedAt, look)
		}
		lines = append(lines, follow.Change{At: at, Text: fmt.Sprintf("rollout %s is %s%s", keyOf(now), now.Phase, render.Because(now.Reason))})
	}
	lines = append(lines, waitChanges(before, now, look)...)
	slices.SortStableFunc(lines, func(a, b follow.Change) int { return cmp.Compare(a.At.Unix(), b.At.Unix()) })
	return lines
}

// stepChanges tell of steps that began or ended, of pods and of traffic.
func stepChanges(before, now rollout.Status, look time.Time) []follow.Change {
	var lines []follow.Change
	for n, step := range now.Steps {
		old := rollout.StepStatus{}
		if n < len(before.Steps) {
			old = before.Steps[n]
		}
		if step.StartedAt != nil && (old.StartedAt == nil || !old.StartedAt.Equal(*step.StartedAt)) {
			cells := slices.DeleteFunc(stepCells(step)[1:], func(cell string) bool { return cell == "" })
			lines = append(lines, follow.Change{At: *step.StartedAt, Text: fmt.Sprintf("step %d of %d begins: %s", step.Index, len(now.Steps), strings.Join(cells, ", "))})
		}
		if step.FinishedAt != nil && (old.FinishedAt == nil || !old.FinishedAt.Equal(*step.FinishedAt)) {
			took := ""
			if step.StartedAt != nil {
				took = " after " + render.ShortDuration(step.FinishedAt.Sub(*step.StartedAt))
			}
			lines = append(lines, follow.Change{At: *step.FinishedAt, Text: fmt.Sprintf("step %d of %d: %s%s", step.Index, len(now.Steps), render.OneLine(step.State), took)})
		}
	}
	if before.CanaryReplicas != now.CanaryReplicas || before.CanaryReadyReplicas != now.CanaryReadyReplicas {
		lines = append(lines, follow.Change{At: look, Text: fmt.Sprintf("  pods: %d of %d are new, %d of these ready", now.CanaryReplicas, now.Replicas, now.CanaryReadyReplicas)})
	}
	if now.Traffic != nil && trafficInWords(before) != trafficInWords(now) {
		lines = append(lines, follow.Change{At: look, Text: "  traffic: " + trafficInWords(now)})
	}
	return lines
}

// waitChanges tell of a wait that a person can end, and how. The other waits are in the rollout's reason.
func waitChanges(before, now rollout.Status, look time.Time) []follow.Change {
	if now.WaitingFor == nil || (before.WaitingFor != nil && before.WaitingFor.Kind == now.WaitingFor.Kind && before.WaitingFor.Gate == now.WaitingFor.Gate) {
		return nil
	}
	var lines []follow.Change
	for _, h := range WhatToDo(now) {
		lines = append(lines, follow.Change{At: look, Text: fmt.Sprintf("  to %s: %s", h.Effect, h.Command)})
	}
	return lines
}

// verbLine reads "approve of step 2 by li via cli, accepted: … (reason given: …)".
func verbLine(d audit.Entry) string {
	actor := render.OneLine(d.Actor)
	if actor == "" {
		actor = "somebody"
	}
	what := string(d.Verb)
	if d.Step > 0 {
		what += fmt.Sprintf(" of step %d", d.Step)
	}
	text := fmt.Sprintf("%s by %s via %s, %s: %s", what, actor, render.OneLine(d.Via), d.Outcome, render.OneLine(d.Message))
	if d.Reason != "" {
		text += fmt.Sprintf(" (reason given: %s)", render.OneLine(d.Reason))
	}
	return text
}

// Epilogue is the last word on a rollout, and what to do next.
func Epilogue(s rollout.Status) string {
	took := ""
	if s.FinishedAt != nil && !s.CreatedAt.IsZero() {
		took = " after " + render.ShortDuration(s.FinishedAt.Sub(s.CreatedAt))
	}
	text := fmt.Sprintf("rollout %s is %s%s%s", keyOf(s), s.Phase, took, render.Because(s.Reason))
	for _, h := range WhatToDo(s) {
		text += fmt.Sprintf("\nTo %s: %s", h.Effect, h.Command)
	}
	if s.Frozen {
		text += "\nThe split holds; to bring it home: slipway rollout rollback " + app.Arguments(s.Party, s.Namespace, s.Name)
	}
	return text
}
