package follow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/plan"
)

// Change is one line that tells what happened to a release, and when.
type Change struct {
	At   time.Time
	Text string
}

// Changes collect lines that tell what happened to a release.
type Changes []Change

// Tell adds a line.
func (c *Changes) Tell(at time.Time, format string, args ...any) {
	*c = append(*c, Change{At: at, Text: fmt.Sprintf(format, args...)})
}

// InOrder are the lines in the order of time, to the second.
func (c Changes) InOrder() []Change {
	slices.SortStableFunc(c, func(a, b Change) int { return cmp.Compare(a.At.Unix(), b.At.Unix()) })
	return c
}

// Decisions adds lines for what people have sent. What has no time has that of the look.
func (c *Changes) Decisions(sent []audit.Entry, look time.Time) {
	for _, d := range sent {
		c.Tell(render.TimeOr(&d.At, look), "%s", decision(d))
	}
}

// decision reads "approve of step 2 by li via cli, accepted: … (reason given: …)".
func decision(d audit.Entry) string {
	what := string(d.Verb)
	if d.Step > 0 {
		what += fmt.Sprintf(" of step %d", d.Step)
	}
	if d.Party != "" {
		what += " of " + d.Party
	}
	text := fmt.Sprintf("%s by %s via %s, %s: %s", render.OneLine(what), cmp.Or(render.OneLine(d.Actor), "somebody"), render.OneLine(d.Via),
		render.OneLine(string(d.Outcome)), render.OneLine(d.Message))
	if d.Reason != "" {
		text += fmt.Sprintf(" (reason given: %s)", render.OneLine(d.Reason))
	}
	return text
}

// Footer is what stands below the drawing of a release: who decided what, and the workflow.
func Footer(title string, sent []audit.Entry, workflow *plan.WorkflowRef) []render.Line {
	var lines []render.Line
	if len(sent) > 0 {
		lines = append(lines, render.Line{}, render.Line{{Text: title}})
	}
	for _, d := range sent {
		lines = append(lines, render.Line{{Text: "  " + d.At.Local().Format(time.DateTime) + "  " + decision(d)}})
	}
	if workflow != nil && workflow.ID != "" {
		text := strings.TrimSpace("workflow " + workflow.ID + "  " + workflow.URL)
		lines = append(lines, render.Line{}, render.Line{{Text: render.OneLine(text)}})
	}
	return lines
}
