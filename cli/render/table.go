package render

import (
	"strings"
)

// table lays text out in columns. Its last column is as wide as it has to be.
type table struct {
	rows [][]string
}

// NewTable is a table with these titles.
func NewTable(titles ...string) *table { return &table{rows: [][]string{titles}} }

func (t *table) Add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) String() string {
	var widths []int
	for _, row := range t.rows {
		for n, cell := range row {
			if n == len(widths) {
				widths = append(widths, 0)
			}
			widths[n] = max(widths[n], DisplayWidth(OneLine(cell)))
		}
	}
	var text strings.Builder
	for _, row := range t.rows {
		var line strings.Builder
		for n, cell := range row {
			line.WriteString(Padded(OneLine(cell), widths[n]+3))
		}
		text.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return text.String()
}
