package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout"
)

// aroundStep is how many steps before and after the current one are drawn where there is no room for all of them.
const aroundStep = 2

// wholeRollout draws all of the rollout, however wide and long that is.
func (d drawing) wholeRollout(s rollout.Status) []string {
	return d.render(d.layoutRollout(s, len(s.Steps)), unbounded)
}

// fitRollout draws as much of the rollout as width columns and height lines hold: steps far from the current one are left out first.
func (d drawing) fitRollout(s rollout.Status, width, height int) []string {
	lines := d.layoutRollout(s, len(s.Steps))
	if len(lines) > height {
		lines = d.layoutRollout(s, aroundStep)
	}
	if rest := len(lines) - height; rest > 0 && height > 1 {
		lines = append(lines[:height-1:height-1], line{{text: fmt.Sprintf("  … and %d lines more", rest+1), colour: dim}})
	}
	return d.render(lines, width-1)
}

// layoutRollout draws the rollout with at most so many steps before and after the current one.
func (d drawing) layoutRollout(s rollout.Status, around int) []line {
	lines := d.rolloutHeader(s)
	lines = append(lines, d.stepLines(s, around)...)
	if split := d.splitLines(s); len(split) > 0 {
		lines = append(append(lines, line{}), split...)
	}
	if s.WaitingFor != nil {
		lines = append(append(lines, line{}), d.waitLines(s)...)
	}
	return lines
}

// rolloutKey is how people name a rollout: "shop/web", with the party in front unless it is the default one.
func rolloutKey(party, namespace, name string) string {
	key := namespace + "/" + name
	if party != "" && party != catalog.DefaultParty {
		key = party + ": " + key
	}
	return oneLine(key)
}

func keyOf(s rollout.Status) string { return rolloutKey(s.Party, s.Namespace, s.Name) }

// styleNames say the styles to people.
var styleNames = map[rollout.Style]string{
	rollout.StylePartition: "canary by partition",
	rollout.StyleCanary:    "canary beside it",
	rollout.StyleBlueGreen: "blue-green",
}

func styleName(style rollout.Style) string {
	if name, ok := styleNames[style]; ok {
		return name
	}
	return string(style)
}

func (d drawing) rolloutHeader(s rollout.Status) []line {
	state := string(s.Phase)
	if s.Paused && !s.Phase.Final() {
		state += ", paused"
	}
	switch {
	case s.CreatedAt.IsZero():
	case s.FinishedAt != nil:
		state += " after " + shortDuration(s.FinishedAt.Sub(s.CreatedAt))
	default:
		state += ", " + shortDuration(d.now().Sub(s.CreatedAt)) + " since it began"
	}
	title := fmt.Sprintf("rollout %s: %s %s, %s", keyOf(s), s.WorkloadRef.Kind, s.WorkloadRef.Name, styleName(s.Style))
	lines := []line{
		{{text: oneLine(title), colour: bold}},
		{{text: state, colour: phaseColour(s)}, {text: because(s.Reason)}},
	}
	if what := newVersion(s); what != "" {
		lines = append(lines, line{{text: what, colour: dim}})
	}
	return append(lines, line{})
}

// newVersion says what the new version is, and what served before.
func newVersion(s rollout.Status) string {
	var parts []string
	for container, image := range s.Images {
		parts = append(parts, container+"="+image)
	}
	slices.Sort(parts)
	if s.StableRevision != "" {
		parts = append(parts, "stable revision "+s.StableRevision)
	}
	if s.CanaryRevision != "" {
		parts = append(parts, "new revision "+s.CanaryRevision)
	}
	return oneLine(strings.Join(parts, ", "))
}

func phaseColour(s rollout.Status) colour {
	switch s.Phase {
	case rollout.PhaseHealthy:
		return green
	case rollout.PhaseFailed:
		return red
	case rollout.PhaseProgressing:
		if s.Paused {
			return yellow
		}
		return cyan
	}
	return yellow
}

// stepLines are the steps, one on a line, with those far from the current one counted only.
func (d drawing) stepLines(s rollout.Status, around int) []line {
	if len(s.Steps) == 0 {
		return nil
	}
	at := min(max(s.CurrentStepIndex, 1), len(s.Steps))
	first, last := max(at-around, 1), min(at+around, len(s.Steps))
	var lines []line
	if first > 1 {
		lines = append(lines, line{{text: fmt.Sprintf("  … %s before", count(first-1, "step")), colour: dim}})
	}
	columns := stepColumns(s)
	for _, step := range s.Steps[first-1 : last] {
		lines = append(lines, d.stepLine(s, step, columns))
	}
	if last < len(s.Steps) {
		lines = append(lines, line{{text: fmt.Sprintf("  … %s more", count(len(s.Steps)-last, "step")), colour: dim}})
	}
	return lines
}

// stepCells are what a step asks, in words: its pods, its traffic, its pause.
func stepCells(step rollout.StepStatus) []string {
	traffic := step.Traffic
	if len(step.Matches) > 0 {
		traffic = count(len(step.Matches), "match")
		if len(step.Matches) > 1 {
			traffic = fmt.Sprintf("%d matches", len(step.Matches))
		}
	}
	if traffic != "" {
		traffic = "traffic " + traffic
	}
	return []string{fmt.Sprintf("step %d", step.Index), "pods " + step.Replicas.String(), traffic, pauseInWords(step.Pause)}
}

// pauseInWords says how a step ends. A duration is written as it comes from the API, "2h0m0s".
func pauseInWords(pause string) string {
	switch pause {
	case "approval":
		return "then an approval"
	case "none", "":
		return ""
	}
	if d, err := time.ParseDuration(pause); err == nil {
		pause = shortDuration(d)
	}
	return "then a pause of " + pause
}

func stepColumns(s rollout.Status) []int {
	widths := make([]int, 4)
	for _, step := range s.Steps {
		for n, cell := range stepCells(step) {
			widths[n] = max(widths[n], displayWidth(oneLine(cell)))
		}
	}
	return widths
}

func (d drawing) stepLine(s rollout.Status, step rollout.StepStatus, widths []int) line {
	marker := "  "
	current := step.Index == s.CurrentStepIndex && !s.Phase.Final()
	if current {
		marker = "> "
	}
	l := line{{text: marker, colour: bold}}
	for n, cell := range stepCells(step) {
		if widths[n] > 0 {
			l = append(l, span{text: padded(oneLine(cell), widths[n]+3)})
		}
	}
	state := stateOfStep(s, step, current)
	return append(l, span{text: padded(state, 20), colour: stepColour(s, step, current)}, span{text: " " + d.stepTook(step)})
}

// stateOfStep says where a step stands; the current one in the finer words of the rollout.
func stateOfStep(s rollout.Status, step rollout.StepStatus, current bool) string {
	if current && s.FinalisingStep != "" {
		return s.FinalisingStep
	}
	if current && s.CurrentStepState != "" && s.Phase == rollout.PhaseProgressing {
		return string(s.CurrentStepState)
	}
	return oneLine(step.State)
}

func stepColour(s rollout.Status, step rollout.StepStatus, current bool) colour {
	switch {
	case current && s.Phase == rollout.PhaseFailed:
		return red
	case current:
		return cyan
	case step.FinishedAt != nil:
		return green
	}
	return dim
}

func (d drawing) stepTook(step rollout.StepStatus) string {
	if step.StartedAt == nil {
		return ""
	}
	return shortDuration(timeOr(step.FinishedAt, d.now()).Sub(*step.StartedAt))
}

// splitLines are how the pods and the traffic are split between the versions.
func (d drawing) splitLines(s rollout.Status) []line {
	var lines []line
	if s.Replicas > 0 {
		share := s.CanaryReplicas * 100 / s.Replicas
		lines = append(lines, line{{text: "pods      "}, {text: bar(share), colour: cyan},
			{text: fmt.Sprintf("  %d of %d are new, %d of these ready", s.CanaryReplicas, s.Replicas, s.CanaryReadyReplicas)}})
	}
	if t := s.Traffic; t != nil {
		share := t.CanaryWeight
		if routesAreBack(s) && s.Replicas > 0 {
			share = s.CanaryReplicas * 100 / s.Replicas
		}
		lines = append(lines, line{{text: "traffic   "}, {text: bar(share), colour: cyan}, {text: "  " + trafficInWords(s)}})
	}
	return lines
}

// routesAreBack says whether the routes were given back at the end: then traffic goes wherever the pods are.
func routesAreBack(s rollout.Status) bool {
	ending := s.FinalisingStep != "" || rolloutOver(s)
	return ending && s.Traffic.CanaryWeight == 0 && len(s.Traffic.Matches) == 0
}

// trafficInWords says where requests go.
func trafficInWords(s rollout.Status) string {
	t := s.Traffic
	switch {
	case t == nil:
		return ""
	case len(t.Matches) > 0:
		return "requests that match go to the new version: " + matchesInWords(t.Matches)
	case routesAreBack(s):
		return "the routes are given back, it follows the pods"
	}
	return fmt.Sprintf("%d %% goes to the new version, %d %% to the stable one", t.CanaryWeight, t.StableWeight)
}

// barWidth is how many characters show 100 %.
const barWidth = 20

// bar shows a share in percent.
func bar(percent int32) string {
	full := int(min(max(percent, 0), 100)) * barWidth / 100
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", barWidth-full) + "]"
}

// matchesInWords reads "header user=li and path /pay, or query beta=1".
func matchesInWords(matches []rollout.Match) string {
	var any []string
	for _, m := range matches {
		var all []string
		if m.Path != nil {
			all = append(all, "path "+m.Path.Value)
		}
		for _, h := range m.Headers {
			all = append(all, "header "+h.Name+"="+h.Value)
		}
		for _, q := range m.QueryParams {
			all = append(all, "query "+q.Name+"="+q.Value)
		}
		any = append(any, strings.Join(all, " and "))
	}
	return oneLine(strings.Join(any, ", or "))
}

// waitLines say what the rollout waits for, how long still, and who can do what about it.
func (d drawing) waitLines(s rollout.Status) []line {
	w := s.WaitingFor
	text := fmt.Sprintf("waits for %s since %s (%s)", waitInWords(w.Kind), clock(w.Since, d.now()), shortDuration(d.now().Sub(w.Since)))
	if w.Until != nil {
		text += fmt.Sprintf(", until %s (%s left)", clock(*w.Until, d.now()), shortDuration(w.Until.Sub(d.now())))
	}
	lines := []line{{{text: text, colour: yellow}, {text: because(w.Message)}}}
	width := 0
	for _, h := range whatToDo(s) {
		width = max(width, len(h.command))
	}
	for _, h := range whatToDo(s) {
		lines = append(lines, line{{text: "  " + padded(h.command, width+3), colour: bold}, {text: h.effect, colour: dim}})
	}
	return lines
}

// waitInWords says a kind of waiting to people.
func waitInWords(kind rollout.WaitKind) string {
	switch kind {
	case rollout.WaitApproval:
		return "an approval"
	case rollout.WaitTimer:
		return "its pause to end"
	case rollout.WaitPods:
		return "pods"
	case rollout.WaitTraffic:
		return "routes to take effect"
	case rollout.WaitParty:
		return "the party's cluster"
	case rollout.WaitDrift:
		return "a decision: somebody else has changed what is released"
	case rollout.WaitResume:
		return "a person"
	}
	return string(kind)
}
