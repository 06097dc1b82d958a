package follow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.io/slipway/cli/render"
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

// Decision is a verb that somebody sent, and what became of it.
type Decision struct {
	At time.Time
	// Verb says what was asked: "approve of step 2".
	Verb, Actor, Via, Outcome, Message, Reason string
}

// String reads "approve of step 2 by li via cli, accepted: … (reason given: …)".
func (d Decision) String() string {
	actor := render.OneLine(d.Actor)
	if actor == "" {
		actor = "somebody"
	}
	text := fmt.Sprintf("%s by %s via %s, %s: %s", render.OneLine(d.Verb), actor, render.OneLine(d.Via), render.OneLine(d.Outcome),
		render.OneLine(d.Message))
	if d.Reason != "" {
		text += fmt.Sprintf(" (reason given: %s)", render.OneLine(d.Reason))
	}
	return text
}

// Footer is what stands below the drawing of a release: who decided what, and the workflow.
func Footer(title string, decisions []Decision, workflow, url string) []render.Line {
	var lines []render.Line
	if len(decisions) > 0 {
		lines = append(lines, render.Line{}, render.Line{{Text: title}})
	}
	for _, d := range decisions {
		lines = append(lines, render.Line{{Text: "  " + d.At.Local().Format(time.DateTime) + "  " + d.String()}})
	}
	if workflow != "" {
		lines = append(lines, render.Line{}, render.Line{{Text: render.OneLine(strings.TrimSpace("workflow " + workflow + "  " + url))}})
	}
	return lines
}
