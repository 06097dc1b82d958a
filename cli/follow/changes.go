package follow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/audit"
)

// Change is one line about a change of a release, with its time.
type Change struct {
	At   time.Time
	Text string
}

// Changes collects the lines about changes of a release.
type Changes []Change

// Add adds a line.
func (c *Changes) Add(at time.Time, format string, args ...any) {
	*c = append(*c, Change{At: at, Text: fmt.Sprintf(format, args...)})
}

// Sorted returns the lines sorted by time, with a resolution of one second.
func (c Changes) Sorted() []Change {
	slices.SortStableFunc(c, func(a, b Change) int { return cmp.Compare(a.At.Unix(), b.At.Unix()) })
	return c
}

// AddDecisions adds a line per request of an actor. An entry without a time gets the time of the read, look.
func (c *Changes) AddDecisions(sent []audit.Entry, look time.Time) {
	for _, d := range sent {
		c.Add(render.TimeOrDefault(&d.At, look), "%s", decision(d))
	}
}

// decision returns, for example, "approve step 2 by li via cli, accepted: … (reason given: …)".
func decision(d audit.Entry) string {
	what := string(d.Verb)
	if d.Step > 0 {
		what += fmt.Sprintf(" step %d", d.Step)
	}
	if d.Party != "" {
		what += " " + d.Party
	}
	text := fmt.Sprintf("%s by %s via %s, %s: %s", render.OneLine(what), cmp.Or(render.OneLine(d.Actor), "unknown"),
		render.OneLine(d.Via),
		render.OneLine(string(d.Outcome)), render.OneLine(d.Message))
	if d.Reason != "" {
		text += fmt.Sprintf(" (reason given: %s)", render.OneLine(d.Reason))
	}
	return text
}

// Footer returns the lines below the drawing of a release: the actors' requests, and the workflow.
func Footer(title string, sent []audit.Entry, workflow *audit.WorkflowRef) []render.Line {
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
