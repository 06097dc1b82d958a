package rollout

import (
	"fmt"
	"strings"
	"time"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// aroundStep is the number of steps drawn before and after the current one if there is no room for all.
const aroundStep = 2

// DrawAll draws the complete rollout and a footer, regardless of the terminal's size.
func DrawAll(d render.Drawing, s rollout.Status, footer ...render.Line) []string {
	return d.Render(append(layout(d, s, len(s.Steps)), footer...), render.Unbounded)
}

// Fit draws as much of the rollout as fits into width columns and height lines. Steps far from the current one are
// omitted first.
func Fit(d render.Drawing, s rollout.Status, width, height int) []string {
	return d.Fit(width, height,
		func() []render.Line { return layout(d, s, len(s.Steps)) },
		func() []render.Line { return layout(d, s, aroundStep) })
}

// layout draws the rollout with at most this many steps before and after the current one.
func layout(d render.Drawing, s rollout.Status, around int) []render.Line {
	lines := header(d, s)
	lines = append(lines, stepLines(d, s, around)...)
	if split := splitLines(s); len(split) > 0 {
		lines = append(append(lines, render.Line{}), split...)
	}
	if s.WaitingFor != nil {
		lines = append(append(lines, render.Line{}), waitLines(d, s)...)
	}
	return lines
}

func nameIn(s rollout.Status) app.ObjectName {
	return app.ObjectName{Party: s.Party, Namespace: s.Namespace, Name: s.Name}
}

func keyOf(s rollout.Status) string { return nameIn(s).String() }

func titleOf(s rollout.Status) string {
	return render.OneLine(fmt.Sprintf("rollout %s: %s %s, %s", keyOf(s), s.WorkloadRef.Kind, s.WorkloadRef.Name,
		string(s.Style)))
}

func header(d render.Drawing, s rollout.Status) []render.Line {
	state := string(s.Phase)
	if s.Paused && !s.Phase.Final() {
		state += ", paused"
	}
	lines := []render.Line{
		{{Text: titleOf(s), Colour: render.Bold}},
		{{Text: state + d.ElapsedSuffix(&s.CreatedAt, s.FinishedAt), Colour: phaseColour(s)},
			{Text: render.ReasonSuffix(s.Reason)}},
	}
	if what := newVersion(s); what != "" {
		lines = append(lines, render.Line{{Text: what, Colour: render.Dim}})
	}
	return append(lines, render.Line{})
}

func newVersion(s rollout.Status) string {
	var parts []string
	if images := strategy.ImageList(s.Images); images != "" {
		parts = append(parts, images)
	}
	if s.StableRevision != "" {
		parts = append(parts, "stable revision "+s.StableRevision)
	}
	if s.CanaryRevision != "" {
		parts = append(parts, "new revision "+s.CanaryRevision)
	}
	return render.OneLine(strings.Join(parts, ", "))
}

func phaseColour(s rollout.Status) render.Colour {
	switch s.Phase {
	case rollout.PhaseHealthy:
		return render.Green
	case rollout.PhaseFailed:
		return render.Red
	case rollout.PhaseProgressing:
		if s.Paused {
			return render.Yellow
		}
		return render.Cyan
	}
	return render.Yellow
}

// stepLines draws one step per line; steps far from the current one are only counted.
func stepLines(d render.Drawing, s rollout.Status, around int) []render.Line {
	if len(s.Steps) == 0 {
		return nil
	}
	at := min(max(s.CurrentStepIndex, 1), len(s.Steps))
	first, last := max(at-around, 1), min(at+around, len(s.Steps))
	var lines []render.Line
	if first > 1 {
		lines = append(lines, render.Line{{Text: fmt.Sprintf("  … %s earlier", phrase.Count(first-1, "step")),
			Colour: render.Dim}})
	}
	var columns render.Columns
	for _, step := range s.Steps {
		columns.Widen(stepCells(step)...)
	}
	columns = append(columns, stateWidth)
	for _, step := range s.Steps[first-1 : last] {
		lines = append(lines, stepLine(d, s, step, columns))
	}
	if last < len(s.Steps) {
		lines = append(lines, render.Line{{Text: fmt.Sprintf("  … %s more", phrase.Count(len(s.Steps)-last, "step")),
			Colour: render.Dim}})
	}
	return lines
}

// stepCells returns the settings of a step as text: pods, traffic and pause.
func stepCells(step rollout.StepStatus) []string {
	traffic := step.Traffic
	if len(step.Matches) > 0 {
		traffic = phrase.Count(len(step.Matches), "match")
	}
	if traffic != "" {
		traffic = "traffic " + traffic
	}
	return []string{fmt.Sprintf("step %d", step.Index), "pods " + step.Replicas.String(), traffic,
		pauseText(step.Pause)}
}

// pauseText returns how a step ends. The API returns durations as "2h0m0s".
func pauseText(pause string) string {
	switch pause {
	case "approval":
		return "then approval"
	case "none", "":
		return ""
	}
	if d, err := time.ParseDuration(pause); err == nil {
		pause = render.ShortDuration(d)
	}
	return "then pause " + pause
}

const stateWidth = 18

func stepLine(d render.Drawing, s rollout.Status, step rollout.StepStatus, columns render.Columns) render.Line {
	marker := "  "
	current := step.Index == s.CurrentStepIndex && !s.Phase.Final()
	if current {
		marker = "> "
	}
	cells := append(render.Spans(stepCells(step)...), render.Span{Text: stateOfStep(s, step, current),
		Colour: stepColour(s, step, current)}, render.Span{Text: d.Elapsed(step.StartedAt, step.FinishedAt)})
	return append(render.Line{{Text: marker, Colour: render.Bold}}, columns.Line("", cells...)...)
}

// stateOfStep returns the state of a step; for the current step the more detailed state of the rollout.
func stateOfStep(s rollout.Status, step rollout.StepStatus, current bool) string {
	if current && s.FinalisingStep != "" {
		return s.FinalisingStep
	}
	if current && s.CurrentStepState != "" && s.Phase == rollout.PhaseProgressing {
		return string(s.CurrentStepState)
	}
	return render.OneLine(step.State)
}

func stepColour(s rollout.Status, step rollout.StepStatus, current bool) render.Colour {
	switch {
	case current && s.Phase == rollout.PhaseFailed:
		return render.Red
	case current:
		return render.Cyan
	case step.FinishedAt != nil:
		return render.Green
	}
	return render.Dim
}

// splitLines draws how pods and traffic are split between the versions.
func splitLines(s rollout.Status) []render.Line {
	var lines []render.Line
	if s.Replicas > 0 {
		share := s.CanaryReplicas * 100 / s.Replicas
		lines = append(lines, render.Line{{Text: "pods      "}, {Text: bar(share), Colour: render.Cyan},
			{Text: "  " + podsText(s)}})
	}
	if t := s.Traffic; t != nil {
		share := t.CanaryWeight
		if routesRestored(s) && s.Replicas > 0 {
			share = s.CanaryReplicas * 100 / s.Replicas
		}
		lines = append(lines, render.Line{{Text: "traffic   "}, {Text: bar(share), Colour: render.Cyan},
			{Text: "  " + trafficText(s)}})
	}
	return lines
}

func podsText(s rollout.Status) string {
	return fmt.Sprintf("%d of %d are new, %d of them ready", s.CanaryReplicas, s.Replicas, s.CanaryReadyReplicas)
}

// routesRestored reports whether the routes were restored at the end. Then traffic follows the pods.
func routesRestored(s rollout.Status) bool {
	ending := s.FinalisingStep != "" || ended(s)
	return ending && s.Traffic.CanaryWeight == 0 && len(s.Traffic.Matches) == 0
}

func trafficText(s rollout.Status) string {
	t := s.Traffic
	switch {
	case t == nil:
		return ""
	case len(t.Matches) > 0:
		return "matching requests go to the new version: " + matchesText(t.Matches)
	case routesRestored(s):
		return "routes are restored, traffic follows the pods"
	}
	return fmt.Sprintf("%d %% to the new version, %d %% to the stable version", t.CanaryWeight, t.StableWeight)
}

const barWidth = 20

func bar(percent int32) string {
	full := int(min(max(percent, 0), 100)) * barWidth / 100
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", barWidth-full) + "]"
}

// matchesText returns, for example, "header user=li and path /pay, or query beta=1".
func matchesText(matches []strategy.Match) string {
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
	return render.OneLine(strings.Join(any, ", or "))
}

// waitLines draws what the rollout waits for, the remaining time, and the commands that are useful now.
func waitLines(d render.Drawing, s rollout.Status) []render.Line {
	w := s.WaitingFor
	text := d.WaitingText(render.WaitText(w.Kind), w.Since, w.Until)
	return append([]render.Line{{{Text: text, Colour: render.Yellow}, {Text: render.ReasonSuffix(w.Message)}}},
		render.Hints(Hints(s))...)
}
