package render

import (
	"cmp"
	"strings"
)

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
	text := ""
	for _, span := range c.Line(indent, Spans(cells...)...) {
		text += span.Text
	}
	return strings.TrimRight(text, " ")
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
