// Package render draws for a person at a terminal: lines of coloured text that fit its width, tables, durations, hints.
package render

import (
	"math"
	"strings"
	"time"
)

// Drawing draws a task for a person: its waves, their services, their workloads.
type Drawing struct {
	Colour bool
	Now    func() time.Time
}

// Took is how long something ran, or has run so far; "" when it has not begun.
func (d Drawing) Took(from, to *time.Time) string {
	if from == nil {
		return ""
	}
	return ShortDuration(TimeOr(to, d.Now()).Sub(*from))
}

// Since reads ", 3m05s since it began", or " after 3m05s" when it is over; "" when it has not begun.
func (d Drawing) Since(from, to *time.Time) string {
	if from == nil || from.IsZero() || to != nil {
		return After(from, to)
	}
	return ", " + d.Took(from, nil) + " since it began"
}

// WaitsFor reads "waits for an approval since 12:00:00 (3m05s)".
func (d Drawing) WaitsFor(what string, since time.Time) string {
	return "waits for " + what + " since " + Clock(since, d.Now()) + " (" + d.Took(&since, nil) + ")"
}

// Line is a line of text in pieces of one colour each.
type Line []Span

// Span is a piece of text in one colour.
type Span struct {
	Text   string
	Colour Colour
}

// trimmed is the line without blanks at its end.
func (l Line) trimmed() Line {
	for n := len(l) - 1; n >= 0; n-- {
		if text := strings.TrimRight(l[n].Text, " "); text != "" {
			return append(l[:n:n], Span{Text: text, Colour: l[n].Colour})
		}
	}
	return nil
}

// Unbounded is the width of what may be as wide as it has to be.
const Unbounded = math.MaxInt

// Render paints the lines and cuts them to that many columns.
func (d Drawing) Render(lines []Line, width int) []string {
	texts := make([]string, len(lines))
	for n, l := range lines {
		texts[n] = d.renderLine(l.trimmed(), width)
	}
	return texts
}

func (d Drawing) renderLine(l Line, width int) string {
	whole, end := 0, ""
	for _, s := range l {
		whole += DisplayWidth(s.Text)
	}
	if whole > width {
		width, end = width-1, "…"
	}
	var text strings.Builder
	for _, s := range l {
		part := beginning(s.Text, width)
		text.WriteString(d.Paint(s.Colour, part))
		if width -= DisplayWidth(part); len(part) < len(s.Text) {
			break
		}
	}
	return text.String() + end
}

// Colour is a graphic rendition of ECMA-48.
type Colour string

// The renditions in use.
const (
	Bold   Colour = "1"
	Dim    Colour = "2"
	Red    Colour = "31"
	Green  Colour = "32"
	Yellow Colour = "33"
	Cyan   Colour = "36"
)

// Paint colours the text where colours are wanted.
func (d Drawing) Paint(c Colour, text string) string {
	if !d.Colour || c == "" || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}
