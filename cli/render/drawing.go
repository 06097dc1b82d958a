// Package render formats output for a terminal: coloured lines that fit its width, tables, durations and hints.
package render

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"slipway.io/slipway/release/plan"
)

// Drawing holds the settings for drawing releases: whether to use colours, and the clock.
type Drawing struct {
	Colour bool
	Now    func() time.Time
}

// Elapsed returns how long something ran, or has run so far; "" if it has not started.
func (d Drawing) Elapsed(from, to *time.Time) string {
	if from == nil {
		return ""
	}
	return ShortDuration(plan.ShownDuration(*from, TimeOrDefault(to, d.Now())))
}

// ElapsedSuffix returns ", started 3m05s ago", or " after 3m05s" if it has ended; "" if it has not started.
func (d Drawing) ElapsedSuffix(from, to *time.Time) string {
	if from == nil || from.IsZero() || to != nil {
		return DurationSuffix(from, to)
	}
	return ", started " + d.Elapsed(from, nil) + " ago"
}

// WaitingText returns, for example, "waiting for approval since 12:00:00 (3m05s), until 13:00:00 (57m left)".
func (d Drawing) WaitingText(what string, since time.Time, until *time.Time) string {
	text := "waiting for " + what + " since " + Clock(since, d.Now()) + " (" + d.Elapsed(&since, nil) + ")"
	if until != nil {
		text += fmt.Sprintf(", until %s (%s left)", Clock(*until, d.Now()), ShortDuration(until.Sub(d.Now())))
	}
	return text
}

// Line is a line of text: spans with one colour each.
type Line []Span

// Span is text in one colour.
type Span struct {
	Text   string
	Colour Colour
}

// trimmed returns the line without trailing spaces.
func (l Line) trimmed() Line {
	for n := len(l) - 1; n >= 0; n-- {
		if text := strings.TrimRight(l[n].Text, " "); text != "" {
			return append(l[:n:n], Span{Text: text, Colour: l[n].Colour})
		}
	}
	return nil
}

// Unbounded is the width for output that must not be cut or wrapped.
const Unbounded = math.MaxInt

// Render colours the lines and cuts them to the width.
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
		part := prefixOfWidth(s.Text, width)
		text.WriteString(d.Paint(s.Colour, part))
		if width -= DisplayWidth(part); len(part) < len(s.Text) {
			break
		}
	}
	return text.String() + end
}

// Colour is an SGR parameter of ECMA-48.
type Colour string

// The colours in use.
const (
	Bold   Colour = "1"
	Dim    Colour = "2"
	Red    Colour = "31"
	Green  Colour = "32"
	Yellow Colour = "33"
	Cyan   Colour = "36"
)

// Paint colours the text if colours are enabled.
func (d Drawing) Paint(c Colour, text string) string {
	if !d.Colour || c == "" || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// Fit draws as much as fits into width columns and height lines. It uses the first layout that fits; they are ordered
// from the most to the least detailed. Long lines are wrapped, because their end often contains the cause of a failure.
// If not even the last layout fits, lines are cut, and the omitted ones are counted.
func (d Drawing) Fit(width, height int, layouts ...func() []Line) []string {
	var lines []Line
	for _, layout := range layouts {
		lines = layout()
		if wrapped := wrapAll(lines, width-1); len(wrapped) <= height {
			return d.Render(wrapped, width-1)
		}
	}
	if rest := len(lines) - height; rest > 0 && height > 1 {
		lines = append(lines[:height-1:height-1], Line{{Text: fmt.Sprintf("  … and %d more lines", rest+1),
			Colour: Dim}})
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

// hangingIndent is the additional indent of a continuation line.
const hangingIndent = 4

// wrapped breaks a line between words into lines of this width.
func (l Line) wrapped(width int) []Line {
	if l.width() <= width || width < 2*hangingIndent {
		return []Line{l}
	}
	indent := min(l.indent()+hangingIndent, width/2)
	var lines []Line
	var line Line
	used := 0
	end := func() {
		lines = append(lines, line)
		line, used = Line{{Text: strings.Repeat(" ", indent)}}, indent
	}
	for _, s := range l {
		for rest := s.Text; rest != ""; {
			part := prefixOfWidth(rest, width-used)
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

func (l Line) text() string {
	text := ""
	for _, s := range l {
		text += s.Text
	}
	return text
}

func (l Line) width() int { return DisplayWidth(l.text()) }

// indent returns the number of leading spaces.
func (l Line) indent() int { return len(l.text()) - len(strings.TrimLeft(l.text(), " ")) }

// Columns holds the column widths that align the cells of several lines. The last cell of a line is not padded.
type Columns []int

const columnGap = 3

// Widen makes the columns wide enough for the cells of another line.
func (c *Columns) Widen(cells ...string) {
	for n, cell := range cells {
		if n == len(*c) {
			*c = append(*c, 0)
		}
		(*c)[n] = max((*c)[n], DisplayWidth(OneLine(cell)))
	}
}

// Line lays out the cells of one line. Columns that are empty in all lines are omitted.
func (c Columns) Line(indent string, cells ...Span) Line {
	var line Line
	for n, cell := range cells {
		cell.Text = OneLine(cell.Text)
		if n < len(c) && c[n] == 0 {
			continue
		}
		if n < len(c) {
			cell.Text = padRight(cell.Text, c[n]+columnGap)
		}
		cell.Text, indent = indent+cell.Text, ""
		line = append(line, cell)
	}
	return line
}

// Spans returns the texts as cells without colour.
func Spans(texts ...string) (spans []Span) {
	for _, text := range texts {
		spans = append(spans, Span{Text: text})
	}
	return spans
}

// Text is Line without colours.
func (c Columns) Text(indent string, cells ...string) string {
	return strings.TrimRight(c.Line(indent, Spans(cells...)...).text(), " ")
}

// Table formats rows in columns under titles. An empty cell is shown as a dash.
type Table struct {
	rows    [][]string
	columns Columns
}

// NewTable returns a table with these titles.
func NewTable(titles ...string) *Table { return &Table{rows: [][]string{titles}} }

// Add adds a row.
func (t *Table) Add(cells ...string) {
	row := make([]string, len(cells))
	for n, cell := range cells {
		row[n] = cmp.Or(cell, "-")
	}
	t.rows = append(t.rows, row)
}

// Flush returns the rows added since the last Flush.
func (t *Table) Flush() string {
	text := t.String()
	t.rows = nil
	return text
}

func (t *Table) String() string {
	for _, row := range t.rows {
		t.columns.Widen(row...)
	}
	var text strings.Builder
	for _, row := range t.rows {
		text.WriteString(t.columns.Text("", row...) + "\n")
	}
	return text.String()
}

// Hint is a command that is useful now, and its effect.
type Hint struct{ Command, Effect string }

// Hints formats the hints, one per line.
func Hints(hints []Hint) []Line {
	var columns Columns
	for _, h := range hints {
		columns.Widen(h.Command)
	}
	var lines []Line
	for _, h := range hints {
		lines = append(lines, columns.Line("  ", Span{Text: h.Command, Colour: Bold},
			Span{Text: h.Effect, Colour: Dim}))
	}
	return lines
}
