package strictyaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxBytes is how large a document may be: what is made of it has to fit one Kubernetes object, for which etcd takes 1.5 MiB.
const MaxBytes = 3 << 19

// Parse reads one document of YAML or JSON. When it is not sound, or empty, or more than one, that is in the findings and ok is false.
func Parse(data []byte) (root Value, found *Findings, ok bool) {
	found = &Findings{}
	node, problem := parseNode(data)
	if problem != nil {
		found.errors = Errors{*problem}
		return Value{}, found, false
	}
	found.place("", node.Line)
	return Value{found: found, node: node}, found, true
}

func parseNode(data []byte) (*yaml.Node, *FieldError) {
	if len(data) > MaxBytes {
		return nil, &FieldError{Line: 1, Reason: fmt.Sprintf("is too large: %d bytes, of at most %d; split it", len(data), MaxBytes)}
	}
	if line := invalidUTF8(data); line > 0 {
		return nil, &FieldError{Line: line, Reason: "is not UTF-8 text: save the document as UTF-8"}
	}
	// JSON has a reader of its own: YAML's knows neither the surrogate pairs of JSON's strings nor keys longer than 1,024 characters.
	if json.Valid(data) {
		return parseJSON(data)
	}
	node, problem := parseYAML(data)
	// The example of the source document closes with an indented "...", which YAML takes for a value or for the end of one. A text in quotes or
	// in a block keeps its dots.
	if closed, changed := closeDocument(data); changed && (problem != nil || endsWithDots(node)) {
		if node, again := parseYAML(closed); again == nil {
			return node, nil
		}
	}
	if problem != nil && looksLikeJSON(data) {
		return nil, jsonError(data)
	}
	return node, problem
}

// endsWithDots says whether the last value of the document is text without quotes that "..." was added to.
func endsWithDots(node *yaml.Node) bool {
	for len(node.Content) > 0 {
		node = node.Content[len(node.Content)-1]
	}
	return node.Kind == yaml.ScalarNode && node.Style == 0 && len(node.Value) > len("...") && strings.HasSuffix(node.Value, "...")
}

func parseYAML(data []byte) (*yaml.Node, *FieldError) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, &FieldError{Line: 1, Reason: "is empty"}
	case err != nil:
		return nil, syntaxError(data, err)
	}
	root := document.Content[0]
	if root.Kind == yaml.ScalarNode && root.ShortTag() == nullTag {
		return nil, &FieldError{Line: 1, Reason: "is empty"}
	}
	var second yaml.Node
	switch err := decoder.Decode(&second); {
	case err == nil:
		return nil, &FieldError{Line: second.Line, Reason: "is followed by a second document: send one document at a time"}
	case !errors.Is(err, io.EOF):
		return nil, syntaxError(data, err)
	}
	return root, nil
}

// closeDocument moves an indented "..." that ends the text to the start of its line, where it closes the document.
func closeDocument(data []byte) (closed []byte, changed bool) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	for n := len(lines) - 1; n >= 0; n-- {
		switch text := bytes.TrimSpace(lines[n]); {
		case len(text) == 0 || text[0] == '#':
			continue
		case !bytes.Equal(text, []byte("...")):
			return nil, false
		}
		lines[n] = []byte("...\n")
		return bytes.Join(lines, nil), true
	}
	return nil, false
}

// invalidUTF8 is the line, counted from 1, of the first byte that is not UTF-8; 0: all is.
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
