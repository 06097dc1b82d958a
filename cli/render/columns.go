package render

import "strings"

// Columns line up the cells of several lines: they are the widths that the cells need. The last cell of a line is as wide as it has to be.
type Columns []int

const columnGap = 3

// Widen makes room for the cells of one more line.
func (c *Columns) Widen(cells ...string) {
	for n, cell := range cells {
		if n == len(*c) {
			*c = append(*c, 0)
		}
		(*c)[n] = max((*c)[n], DisplayWidth(OneLine(cell)))
	}
}

// Line lays out the cells of one line. A column that is empty in all lines is left out.
func (c Columns) Line(indent string, cells ...Span) Line {
	var line Line
	for n, cell := range cells {
		cell.Text = OneLine(cell.Text)
		if n < len(c) && c[n] == 0 {
			continue
		}
		if n < len(c) {
			cell.Text = padded(cell.Text, c[n]+columnGap)
		}
		cell.Text, indent = indent+cell.Text, ""
		line = append(line, cell)
	}
	return line
}

// Text is Line without colours.
func (c Columns) Text(indent string, cells ...string) string {
	var text strings.Builder
	text.WriteString(indent)
	for n, cell := range cells {
		if cell = OneLine(cell); n < len(c) {
			cell = padded(cell, c[n]+columnGap)
		}
		text.WriteString(cell)
	}
	return strings.TrimRight(text.String(), " ")
}

// Table lays text out in columns under titles. An empty cell is shown as a dash.
type Table struct {
	rows    [][]string
	columns Columns
}

// NewTable is a table with these titles.
func NewTable(titles ...string) *Table { return &Table{rows: [][]string{titles}} }

// Add adds a row.
func (t *Table) Add(cells ...string) {
	row := make([]string, len(cells))
	for n, cell := range cells {
		row[n] = OrDash(cell)
	}
	t.rows = append(t.rows, row)
}

// Flush gives the rows that it has not given yet.
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

// Hint is a command that a person can give now, and what it does.
type Hint struct{ Command, Effect string }

// Hints are the commands, one on a line.
func Hints(hints []Hint) []Line {
	var columns Columns
	for _, h := range hints {
		columns.Widen(h.Command)
	}
	var lines []Line
	for _, h := range hints {
		lines = append(lines, columns.Line("  ", Span{Text: h.Command, Colour: Bold}, Span{Text: h.Effect, Colour: Dim}))
	}
	return lines
}
