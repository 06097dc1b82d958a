// Package render draws for a person at a terminal: lines of coloured text that fit its width, tables, durations, hints.
package render

import (
	"fmt"
	"math"
	"strings"
	"time"

	"slipway.io/slipway/release/plan"
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
	return ShortDuration(plan.Lasted(*from, TimeOr(to, d.Now())))
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
	end := ""
	if l.width() > width {
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

// Fit draws as much as width columns and height lines hold. The layouts are of the same thing, from the most detailed one to the least; the
// first one that fits is drawn. A line that is too wide is continued on the next one: its end is often the very cause of a failure. Where
// even the last layout has no room for that, lines are cut, and those that are left over are counted.
func (d Drawing) Fit(width, height int, layouts ...func() []Line) []string {
	var lines []Line
	for _, layout := range layouts {
		lines = layout()
		if wrapped := wrapAll(lines, width-1); len(wrapped) <= height {
			return d.Render(wrapped, width-1)
		}
	}
	if rest := len(lines) - height; rest > 0 && height > 1 {
		lines = append(lines[:height-1:height-1], Line{{Text: fmt.Sprintf("  … and %d lines more", rest+1), Colour: Dim}})
	}
	return d.Render(lines, width-1)
}

func wrapAll(lines []Line, width int) []Line {
	var all []Line
	for _, l := range lines {
		all = append(all, l.trimmed().wrapped(width)...)
	}
	return all
}

// hanging is how far a continued line stands to the right of the line that it continues.
const hanging = 4

// wrapped breaks a line between words into lines of that width.
func (l Line) wrapped(width int) []Line {
	if l.width() <= width || width < 2*hanging {
		return []Line{l}
	}
	indent := min(l.indent()+hanging, width/2)
	var lines []Line
	var line Line
	used := 0
	end := func() {
		lines = append(lines, line)
		line, used = Line{{Text: strings.Repeat(" ", indent)}}, indent
	}
	for _, s := range l {
		for rest := s.Text; rest != ""; {
			part := beginning(rest, width-used)
			if len(part) < len(rest) {
				if blank := strings.LastIndexByte(part, ' '); blank >= 0 {
					part = part[:blank+1]
				} else if used > indent {
					part = "" // a word that is too long for this line begins the next one
				} else if part == "" {
					part = rest // not even one character fits
				}
			}
			line, used = append(line, Span{Text: part, Colour: s.Colour}), used+DisplayWidth(part)
			if rest = rest[len(part):]; rest != "" {
				end()
				rest = strings.TrimLeft(rest, " ")
			}
		}
	}
	return append(lines, line)
}

func (l Line) width() int {
	columns := 0
	for _, s := range l {
		columns += DisplayWidth(s.Text)
	}
	return columns
}

// indent is how many blanks the line begins with.
func (l Line) indent() int {
	columns := 0
	for _, s := range l {
		bare := strings.TrimLeft(s.Text, " ")
		columns += len(s.Text) - len(bare)
		if bare != "" {
			break
		}
	}
	return columns
}
