package strictyaml

import (
	"bytes"
	"regexp"
)

// marker begins or ends a document. YAML allows it at the start of a line only, and nothing else may stand there.
var marker = regexp.MustCompile(`^(---|\.\.\.)([ \t\r\n]|$)`)

// Split takes a text apart at its document markers. Each part keeps its place by blank lines; parts without content are left out.
func Split(text []byte) [][]byte {
	var parts [][]byte
	lines := bytes.SplitAfter(text, []byte("\n"))
	start := 0
	flush := func(end int) {
		body := bytes.Join(lines[start:end], nil)
		if hasContent(lines[start:end]) {
			parts = append(parts, append(bytes.Repeat([]byte("\n"), start), body...))
		}
		start = end
	}
	for n, line := range lines {
		if !marker.Match(line) {
			continue
		}
		flush(n)
		// What follows the marker on its line belongs to the document.
		lines[n] = append([]byte("   "), line[3:]...)
	}
	flush(len(lines))
	return parts
}

func hasContent(lines [][]byte) bool {
	for _, line := range lines {
		// A directive such as "%YAML 1.2" belongs to the document that follows, and says nothing that matters.
		if directive := bytes.HasPrefix(line, []byte("%")); directive {
			continue
		}
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return true
		}
	}
	return false
}
