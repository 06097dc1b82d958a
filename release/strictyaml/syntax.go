package strictyaml

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// yamlPrefix is what the YAML library puts before its message.
var yamlPrefix = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntaxError says what the YAML library found wrong, and on which line.
func syntaxError(data []byte, err error) *FieldError {
	message := yamlPrefix.ReplaceAllString(err.Error(), "")
	lines := bytes.SplitAfter(data, []byte("\n"))
	n := faultyLine(lines, message, seenLine(data, err))
	if n > 0 && len(bytes.TrimSpace(lines[n])) == 0 {
		n-- // the text ends with a line break: what is missing is missing on the line before
	}
	if tabIndented(lines[n]) {
		return &FieldError{Line: n + 1, Reason: "is indented with a tab: YAML is indented with spaces only"}
	}
	if strings.Contains(message, "<document start>") {
		return &FieldError{Line: n + 1, Reason: "goes on after the end of the document: send one document at a time"}
	}
	return &FieldError{Line: n + 1, Reason: "is not sound YAML: " + message}
}

// faultyLine is the index of the line at fault: the last of the shortest beginning of the text that is wrong in the same way. The search begins
// just before the line where the library saw it, for that often is the begin of the block, or one too small or too large.
func faultyLine(lines [][]byte, message string, seen int) int {
	wrong := func(n int) bool { return firstProblem(bytes.Join(lines[:n+1], nil)) == message }
	last := len(lines) - 1
	low, high := 0, min(max(seen-3, 0), last)
	for step := 1; high < last && !wrong(high); step *= 2 {
		low, high = high+1, min(high+step, last)
	}
	return low + sort.Search(high-low, func(n int) bool { return wrong(low + n) })
}

var unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)

// seenLine is where the library saw the error, counted from 1, as far as it can be told: it names no line for some.
func seenLine(data []byte, err error) int {
	match := yamlPrefix.FindStringSubmatch(err.Error())
	if match != nil && match[1] != "" {
		line, _ := strconv.Atoi(match[1]) // digits only: at worst too many, which is only a bad begin
		return line
	}
	at := bytes.IndexFunc(data, func(r rune) bool { return unicode.IsControl(r) && !unicode.IsSpace(r) })
	if anchor := unknownAnchor.FindStringSubmatch(yamlPrefix.ReplaceAllString(err.Error(), "")); anchor != nil {
		at = bytes.Index(data, []byte("*"+anchor[1]))
	}
	return 1 + bytes.Count(data[:max(at, 0)], []byte("\n"))
}

// firstProblem is the message of the first error in the text, "" when it is sound.
func firstProblem(text []byte) string {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for range 2 {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			return ""
		}
		if err != nil {
			return yamlPrefix.ReplaceAllString(err.Error(), "")
		}
	}
	return ""
}

func tabIndented(line []byte) bool {
	text := string(line)
	indent := text[:len(text)-len(strings.TrimLeft(text, " \t"))]
	return strings.Contains(indent, "\t")
}
