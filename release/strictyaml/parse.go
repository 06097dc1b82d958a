package strictyaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxBytes is the maximum size of a document: the result must fit into one Kubernetes object, and etcd accepts 1.5 MiB.
const maxBytes = 3 << 19

// maxNodes is the maximum number of keys and values of a document, with its lists and mappings: a plan of 1,000 items
// with all keys has 21,000.
const maxNodes = 50_000

// maxTokens is the number of tokens of a YAML text up to which nodes are made of it: an empty list in a list has the
// most for one node, its brackets and a comma. The library makes at most three nodes of a token.
const maxTokens = 3 * maxNodes

// Parse reads one document of YAML or JSON. If it is invalid, empty, or more than one, ok is false and found has the
// error.
func Parse(data []byte) (root Value, found *Findings, ok bool) {
	found = &Findings{lines: map[string]int{}, unreadable: map[string]bool{}}
	node, problem := parseNode(data)
	if problem != nil {
		found.errors = Errors{*problem}
		return Value{}, found, false
	}
	found.lines[""] = node.Line
	return Value{found: found, node: node}, found, true
}

func parseNode(data []byte) (*yaml.Node, *FieldError) {
	if len(data) > maxBytes {
		return nil, &FieldError{Line: 1, Reason: fmt.Sprintf("is too large: %d bytes, of at most %d; split it",
			len(data), maxBytes)}
	}
	if line := invalidUTF8(data); line > 0 {
		return nil, &FieldError{Line: line, Reason: "is not UTF-8 text: save the document as UTF-8"}
	}
	// JSON has its own reader: the YAML library supports neither the surrogate pairs of JSON strings nor keys longer
	// than 1,024 characters.
	if json.Valid(data) {
		return parseJSON(data)
	}
	if exceedsTokens(data, maxTokens) {
		return nil, tooManyNodes()
	}
	node, err := parseYAML(data)
	// The example of the source document ends with an indented "...", which YAML reads as a value or as the end of one.
	// Dots in a quoted text or a block stay.
	if closed, changed := closeDocument(data); changed && (err != nil || endsWithDots(node)) {
		if again, wrong := parseYAML(closed); wrong == nil {
			node, err = again, nil
		}
	}
	problem, isKnown := errors.AsType[FieldError](err)
	switch {
	case err == nil && countNodes(node) > maxNodes:
		return nil, tooManyNodes()
	case err == nil:
		return node, nil
	case looksLikeJSON(data):
		return nil, jsonError(data)
	case isKnown:
		return nil, &problem
	}
	return nil, syntaxError(data, err)
}

func tooManyNodes() *FieldError {
	return &FieldError{Line: 1, Reason: fmt.Sprintf("is too large: it has more than %d keys and values; split it",
		maxNodes)}
}

// countNodes returns the number of nodes of a document.
func countNodes(node *yaml.Node) int {
	nodes := 1
	for _, child := range node.Content {
		nodes += countNodes(child)
	}
	return nodes
}

// endsWithDots reports whether the last value of the document is an unquoted text to which "..." was appended.
func endsWithDots(node *yaml.Node) bool {
	for len(node.Content) > 0 {
		node = node.Content[len(node.Content)-1]
	}
	return node.Kind == yaml.ScalarNode && node.Style == 0 && len(node.Value) > len("...") &&
		strings.HasSuffix(node.Value, "...")
}

// parseYAML returns a FieldError, or an error of the YAML library.
func parseYAML(data []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, FieldError{Line: 1, Reason: "is empty"}
	case err != nil:
		return nil, err
	}
	root := document.Content[0]
	if root.Kind == yaml.ScalarNode && root.ShortTag() == nullTag {
		return nil, FieldError{Line: 1, Reason: "is empty"}
	}
	var second yaml.Node
	switch err := decoder.Decode(&second); {
	case err == nil:
		return nil, FieldError{Line: second.Line,
			Reason: "is followed by a second document: send one document at a time"}
	case !errors.Is(err, io.EOF):
		return nil, err
	}
	return root, nil
}

// closeDocument moves an indented "..." at the end of the text to the start of its line, where it closes the document.
func closeDocument(data []byte) (closed []byte, changed bool) {
	for end := len(data); end > 0; {
		start := bytes.LastIndexByte(data[:end-1], '\n') + 1
		switch text := bytes.TrimSpace(data[start:end]); {
		case len(text) == 0 || text[0] == '#':
			end = start
			continue
		case !bytes.Equal(text, []byte("...")):
			return nil, false
		}
		return slices.Concat(data[:start], []byte("...\n"), data[end:]), true
	}
	return nil, false
}

// invalidUTF8 returns the line, counted from 1, of the first byte that is not UTF-8; 0: there is none.
func invalidUTF8(data []byte) int {
	line := 1
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r == utf8.RuneError && size == 1 {
			return line
		}
		if r == '\n' {
			line++
		}
		data = data[size:]
	}
	return 0
}

// yamlPrefix is the prefix of the YAML library's messages.
var yamlPrefix = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntaxError returns the YAML library's error with the line that causes it.
func syntaxError(data []byte, err error) *FieldError {
	message := yamlPrefix.ReplaceAllString(err.Error(), "")
	lines := bytes.SplitAfter(data, []byte("\n"))
	n := faultyLine(lines, message, seenLine(data, err))
	if n > 0 && len(bytes.TrimSpace(lines[n])) == 0 {
		n-- // the text ends with a line break: the missing part belongs to the line before
	}
	if tabIndented(lines[n]) {
		return &FieldError{Line: n + 1, Reason: "is indented with a tab: YAML is indented with spaces only"}
	}
	if strings.Contains(message, "<document start>") {
		return &FieldError{Line: n + 1, Reason: "continues after the end of the document: send one document at a time"}
	}
	return &FieldError{Line: n + 1, Reason: "is not valid YAML: " + message}
}

// maxSearched is how many bytes the search for a faulty line parses: enough for its usual seven prefixes of a document
// of 1 MiB.
const maxSearched = 8 << 20

// faultyLine returns the index of the line that causes the error: the last line of the shortest prefix of the text with
// the same error. The search starts just before the line that the library reports, which is often the start of the
// block, or off by one. In a large document whose error is far from there, it is the library's line.
func faultyLine(lines [][]byte, message string, seen int) int {
	last, searched := len(lines)-1, 0
	wrong := func(n int) bool {
		prefix := bytes.Join(lines[:n+1], nil)
		if searched += len(prefix); searched > maxSearched {
			return true
		}
		return firstProblem(prefix) == message
	}
	low, high := 0, min(max(seen-3, 0), last)
	for step := 1; high < last && !wrong(high); step *= 2 {
		low, high = high+1, min(high+step, last)
	}
	found := low + sort.Search(high-low, func(n int) bool { return wrong(low + n) })
	if searched > maxSearched {
		return min(max(seen-1, 0), last)
	}
	return found
}

var unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)

// seenLine returns the line that the library reports, counted from 1. For errors without a line it searches for the
// cause.
func seenLine(data []byte, err error) int {
	match := yamlPrefix.FindStringSubmatch(err.Error())
	if match != nil && match[1] != "" {
		line, _ := strconv.Atoi(match[1]) // digits only: an overflow just starts the search at a bad line
		return line
	}
	at := bytes.IndexFunc(data, func(r rune) bool { return unicode.IsControl(r) && !unicode.IsSpace(r) })
	if anchor := unknownAnchor.FindStringSubmatch(yamlPrefix.ReplaceAllString(err.Error(), "")); anchor != nil {
		at = bytes.Index(data, []byte("*"+anchor[1]))
	}
	return 1 + bytes.Count(data[:max(at, 0)], []byte("\n"))
}

// firstProblem returns the message of the first error in the text, "" if there is none.
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

// marker matches a document marker. YAML allows it only at the start of a line, followed by white space.
var marker = regexp.MustCompile(`^(---|\.\.\.)([ \t\r\n]|$)`)

// Split splits a text at its document markers. Blank lines keep the line numbers of each part; parts without content
// are left out.
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
		// Text after the marker on its line belongs to the document.
		lines[n] = append([]byte("   "), line[3:]...)
	}
	flush(len(lines))
	return parts
}

func hasContent(lines [][]byte) bool {
	for _, line := range lines {
		// A directive such as "%YAML 1.2" belongs to the following document and has no content.
		if directive := bytes.HasPrefix(line, []byte("%")); directive {
			continue
		}
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return true
		}
	}
	return false
}

// jsonReader converts JSON to YAML nodes with their lines.
type jsonReader struct {
	data    []byte
	decoder *json.Decoder
	// offset and line are how far lines have been counted.
	offset int64
	line   int
	// nodes is how many nodes were made; from maxNodes on there are no more.
	nodes int
}

// jsonBegin matches the beginning of JSON that hardly any YAML has.
var jsonBegin = regexp.MustCompile(`^\s*(\{\s*"|\[\s*[\[{"])`)

func looksLikeJSON(data []byte) bool { return jsonBegin.Match(data) }

// jsonError returns the first syntax error of a text that looks like JSON, with its line.
func jsonError(data []byte) *FieldError {
	line, message := 1, "is neither valid JSON nor YAML"
	var syntax *json.SyntaxError
	if err := json.Unmarshal(data, new(any)); errors.As(err, &syntax) {
		line += bytes.Count(data[:syntax.Offset], []byte("\n"))
		message = "is not valid JSON: " + syntax.Error()
	}
	return &FieldError{Line: line, Reason: message}
}

// parseJSON reads a text that is known to be valid JSON, so that no token is an error.
func parseJSON(data []byte) (*yaml.Node, *FieldError) {
	r := &jsonReader{data: data, decoder: json.NewDecoder(bytes.NewReader(data)), line: 1}
	r.decoder.UseNumber()
	root := r.node()
	if r.nodes > maxNodes {
		return nil, tooManyNodes()
	}
	if root.Tag == nullTag {
		return nil, &FieldError{Line: 1, Reason: "is empty"}
	}
	return root, nil
}

func (r *jsonReader) node() *yaml.Node {
	r.nodes++
	token, _ := r.decoder.Token()
	// A JSON string contains no line break, so a token ends on the line where it begins.
	end := r.decoder.InputOffset()
	r.line += bytes.Count(r.data[r.offset:end], []byte("\n"))
	r.offset = end
	delimiter, ok := token.(json.Delim)
	if !ok {
		return jsonScalar(token, r.line)
	}
	node := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: r.line}
	if delimiter == '[' {
		node.Kind, node.Tag = yaml.SequenceNode, "!!seq"
	}
	// An object's tokens are key, value, key, value: the same order as a mapping node's content.
	for r.nodes <= maxNodes && r.decoder.More() {
		node.Content = append(node.Content, r.node())
	}
	_, _ = r.decoder.Token() // the closing bracket
	return node
}

func jsonScalar(token json.Token, line int) *yaml.Node {
	node := &yaml.Node{Kind: yaml.ScalarNode, Line: line, Tag: nullTag, Value: "null"}
	switch value := token.(type) {
	case string:
		node.Tag, node.Value, node.Style = stringTag, value, yaml.DoubleQuotedStyle
	case json.Number:
		node.Tag, node.Value = integerTag, value.String()
		if strings.ContainsAny(node.Value, ".eE") {
			node.Tag = floatTag
		}
	case bool:
		node.Tag, node.Value = booleanTag, strconv.FormatBool(value)
	}
	return node
}
