package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
)

// rolloutChanges tell how a rollout came from one state to the next, in the order of time.
func rolloutChanges(before, now rollout.Status, look time.Time) []change {
	var lines []change
	for _, d := range now.History[min(len(before.History), len(now.History)):] {
		lines = append(lines, change{timeOr(&d.At, look), verbLine(d)})
	}
	lines = append(lines, stepChanges(before, now, look)...)
	if before.Phase != now.Phase || before.Reason != now.Reason {
		at := look
		if now.Phase.Final() {
			at = timeOr(now.FinishedAt, look)
		}
		lines = append(lines, change{at, fmt.Sprintf("rollout %s is %s%s", keyOf(now), now.Phase, because(now.Reason))})
	}
	lines = append(lines, waitChanges(before, now, look)...)
	slices.SortStableFunc(lines, func(a, b change) int { return cmp.Compare(a.at.Unix(), b.at.Unix()) })
	return lines
}

// stepChanges tell of steps that began or ended, of pods and of traffic.
func stepChanges(before, now rollout.Status, look time.Time) []change {
	var lines []change
	for n, step := range now.Steps {
		old := rollout.StepStatus{}
		if n < len(before.Steps) {
			old = before.Steps[n]
		}
		if step.StartedAt != nil && (old.StartedAt == nil || !old.StartedAt.Equal(*step.StartedAt)) {
			cells := slices.DeleteFunc(stepCells(step)[1:], func(cell string) bool { return cell == "" })
			lines = append(lines, change{*step.StartedAt, fmt.Sprintf("step %d of %d begins: %s", step.Index, len(now.Steps), strings.Join(cells, ", "))})
		}
		if step.FinishedAt != nil && (old.FinishedAt == nil || !old.FinishedAt.Equal(*step.FinishedAt)) {
			took := ""
			if step.StartedAt != nil {
				took = " after " + shortDuration(step.FinishedAt.Sub(*step.StartedAt))
			}
			lines = append(lines, change{*step.FinishedAt, fmt.Sprintf("step %d of %d: %s%s", step.Index, len(now.Steps), oneLine(step.State), took)})
		}
	}
	if before.CanaryReplicas != now.CanaryReplicas || before.CanaryReadyReplicas != now.CanaryReadyReplicas {
		lines = append(lines, change{look, fmt.Sprintf("  pods: %d of %d are new, %d of these ready", now.CanaryReplicas, now.Replicas, now.CanaryReadyReplicas)})
	}
	if now.Traffic != nil && trafficInWords(before) != trafficInWords(now) {
		lines = append(lines, change{look, "  traffic: " + trafficInWords(now)})
	}
	return lines
}

// waitChanges tell of a wait that a person can end, and how. The other waits are in the rollout's reason.
func waitChanges(before, now rollout.Status, look time.Time) []change {
	if now.WaitingFor == nil || (before.WaitingFor != nil && before.WaitingFor.Kind == now.WaitingFor.Kind && before.WaitingFor.Gate == now.WaitingFor.Gate) {
		return nil
	}
	var lines []change
	for _, h := range whatToDo(now) {
		lines = append(lines, change{look, fmt.Sprintf("  to %s: %s", h.effect, h.command)})
	}
	return lines
}

// verbLine reads "approve of step 2 by li via cli, accepted: … (reason given: …)".
func verbLine(d audit.Entry) string {
	actor := oneLine(d.Actor)
	if actor == "" {
		actor = "somebody"
	}
	what := string(d.Verb)
	if d.Step > 0 {
		what += fmt.Sprintf(" of step %d", d.Step)
	}
	text := fmt.Sprintf("%s by %s via %s, %s: %s", what, actor, oneLine(d.Via), d.Outcome, oneLine(d.Message))
	if d.Reason != "" {
		text += fmt.Sprintf(" (reason given: %s)", oneLine(d.Reason))
	}
	return text
}

// rolloutEpilogue is the last word on a rollout, and what to do next.
func rolloutEpilogue(s rollout.Status) string {
	took := ""
	if s.FinishedAt != nil && !s.CreatedAt.IsZero() {
		took = " after " + shortDuration(s.FinishedAt.Sub(s.CreatedAt))
	}
	text := fmt.Sprintf("rollout %s is %s%s%s", keyOf(s), s.Phase, took, because(s.Reason))
	for _, h := range whatToDo(s) {
		text += fmt.Sprintf("\nTo %s: %s", h.effect, h.command)
	}
	if s.Frozen {
		text += "\nThe split holds; to bring it home: slipway rollout rollback " + nameArguments(s.Party, s.Namespace, s.Name)
	}
	return text
}
