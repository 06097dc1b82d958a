package render

import (
	"fmt"
	"strings"
)

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

// width is how many columns the line takes.
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
