package render

import "strings"

// Prose breaks the paragraphs of a text into lines of at most that many columns. Lines that begin with a blank are lists and tables, and
// stay as they are.
func Prose(text string, columns int) string {
	var lines, words []string
	flush := func() {
		line := ""
		for _, word := range words {
			if line != "" && DisplayWidth(line)+1+DisplayWidth(word) > columns {
				lines, line = append(lines, line), ""
			}
			line = strings.TrimPrefix(line+" "+word, " ")
		}
		if line != "" {
			lines = append(lines, line)
		}
		words = nil
	}
	for _, line := range strings.Split(text, "\n") {
		if line == "" || line[0] == ' ' {
			flush()
			lines = append(lines, line)
			continue
		}
		words = append(words, strings.Fields(line)...)
	}
	flush()
	return strings.Join(lines, "\n")
}
