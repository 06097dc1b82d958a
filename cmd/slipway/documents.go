package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/v1alpha1"
)

// standardInput is the name of a file that stands for the standard input.
const standardInput = "-"

// The kinds of objects that a file may hold.
const (
	kindService = "ReleaseService"
	kindPlan    = "DeployPlan"
	kindParty   = "Party"
)

// document is one document of a file: the spec alone, or a whole object whose spec was taken out.
type document struct {
	// file is what the document was read from, as people know it.
	file string
	// name is the object's metadata.name, or else derived from the file's name; it may be empty.
	name string
	// kind is the object's kind, empty when the document is a spec alone.
	kind string
	// body is the spec. Blank lines stand in for what was before it in the file, so that its lines are those of the file.
	body []byte
}

// marker begins or ends a document. YAML allows it at the start of a line only, and nothing else may stand there.
var marker = regexp.MustCompile(`^(---|\.\.\.)([ \t\r\n]|$)`)

// readDocuments reads every document of every file, or none: what is wrong is reported for all of them at once.
func (a *app) readDocuments(files []string) ([]document, []finding, error) {
	var documents []document
	var findings []finding
	for _, file := range files {
		text, shown, err := a.readFile(file)
		if err != nil {
			return nil, nil, err
		}
		before := len(documents) + len(findings)
		for _, part := range splitDocuments(text) {
			d, wrong := readDocument(shown, part)
			documents, findings = append(documents, d), append(findings, wrong...)
		}
		if len(documents)+len(findings) == before {
			findings = append(findings, finding{file: shown, wrong: strictyaml.FieldError{Reason: "the file holds no document"}})
		}
		nameByFile(documents[min(before, len(documents)):], file)
	}
	return documents, findings, nil
}

func (a *app) readFile(file string) (text []byte, shown string, err error) {
	if file == standardInput {
		text, err = io.ReadAll(a.in)
		return text, "standard input", err
	}
	text, err = os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, "", fmt.Errorf("there is no file %s", file)
	}
	return text, file, err
}

// nameByFile names a document that is a spec alone after its file, which must then hold nothing else.
func nameByFile(documents []document, file string) {
	if len(documents) != 1 || documents[0].name != "" || documents[0].kind != "" || file == standardInput {
		return
	}
	name := filepath.Base(file)
	for _, extension := range []string{".yaml", ".yml", ".json"} {
		name = strings.TrimSuffix(name, extension)
	}
	documents[0].name = name
}

// splitDocuments takes a text apart at its document markers. Each part keeps its place by blank lines; parts without content are left out.
func splitDocuments(text []byte) [][]byte {
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

// readDocument tells a whole object from a spec alone. A text that is not sound is passed on as a spec: the strict reader says what is wrong.
func readDocument(file string, text []byte) (document, []finding) {
	plain := document{file: file, body: text}
	var root yaml.Node
	if yaml.Unmarshal(text, &root) != nil || len(root.Content) == 0 || root.Content[0].Kind != yaml.MappingNode {
		return plain, nil
	}
	mapping := root.Content[0]
	if valueOf(mapping, "apiVersion") == nil && valueOf(mapping, "kind") == nil {
		return plain, nil
	}
	object := &objectReader{file: file, text: text, node: mapping}
	d := object.read()
	return d, object.findings
}

// objectReader reads one whole object strictly.
type objectReader struct {
	file     string
	text     []byte
	node     *yaml.Node
	findings []finding
}

func (r *objectReader) refuse(node *yaml.Node, field, format string, args ...any) {
	r.findings = append(r.findings, finding{file: r.file,
		wrong: strictyaml.FieldError{Field: field, Line: node.Line, Reason: fmt.Sprintf(format, args...)}})
}

func (r *objectReader) read() document {
	d := document{file: r.file}
	if !r.ours() {
		return d
	}
	known := map[string]bool{}
	for n := 0; n+1 < len(r.node.Content); n += 2 {
		key, value := r.node.Content[n], r.node.Content[n+1]
		if known[key.Value] {
			r.refuse(key, key.Value, "is given twice")
		}
		known[key.Value] = true
		switch key.Value {
		case "kind":
			d.kind = value.Value
		case "metadata":
			d.name = r.readMetadata(value)
		case "spec":
			d.body = specText(r.text, r.node, n)
		case "apiVersion", "status":
			// The status is written by the engine; kubectl shows it, and so it is in files that come from there.
		default:
			r.refuse(key, key.Value, "is unknown: an object has apiVersion, kind, metadata and spec")
		}
	}
	for _, key := range []string{"metadata", "spec"} {
		if !known[key] {
			r.refuse(r.node, key, "is missing: an object has apiVersion, kind, metadata and spec")
		}
	}
	return d
}

// ours says whether the object is one of Slipway's. Of any other there is nothing more to say.
func (r *objectReader) ours() bool {
	want := v1alpha1.GroupVersion.String()
	version, kind := valueOf(r.node, "apiVersion"), valueOf(r.node, "kind")
	switch {
	case version == nil:
		r.refuse(r.node, "apiVersion", "is missing: write %s", want)
	case version.Value != want:
		r.refuse(version, "apiVersion", "must be %s, not %s", want, strictyaml.Quote(version.Value))
	case kind == nil:
		r.refuse(r.node, "kind", "is missing: write %s, %s or %s", kindService, kindPlan, kindParty)
	case kind.Value != kindService && kind.Value != kindPlan && kind.Value != kindParty:
		r.refuse(kind, "kind", "must be %s, %s or %s, not %s", kindService, kindPlan, kindParty, strictyaml.Quote(kind.Value))
	default:
		return true
	}
	return false
}

// readMetadata reads the name. What the API server writes is passed over; what it could not be given over the API is refused.
func (r *objectReader) readMetadata(node *yaml.Node) (name string) {
	for n := 0; n+1 < len(node.Content); n += 2 {
		key, value := node.Content[n], node.Content[n+1]
		switch key.Value {
		case "name":
			name = value.Value
		case "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields":
		case "namespace":
			r.refuse(key, "metadata.namespace", "cannot be chosen over the API, which keeps everything in the engine's own namespace: remove it, or use kubectl")
		default:
			r.refuse(key, "metadata."+key.Value, "cannot be set over the API: remove it, or use kubectl")
		}
	}
	if name == "" {
		r.refuse(node, "metadata.name", "is missing")
	}
	return name
}

// specText cuts the value of entry n of the mapping out of the text and leaves it on its lines: blanks stand in for what was before it.
func specText(text []byte, mapping *yaml.Node, n int) []byte {
	value := mapping.Content[n+1]
	lines := bytes.SplitAfter(text, []byte("\n"))
	flow := mapping.Style&yaml.FlowStyle != 0 // as JSON is
	end := len(text)
	if n+2 < len(mapping.Content) {
		next := mapping.Content[n+2]
		end = offsetOf(lines, next.Line, 1)
		if flow {
			end = offsetOf(lines, next.Line, next.Column)
		}
	} else if flow {
		end = bytes.LastIndexByte(text, '}')
	}
	spec := bytes.Repeat([]byte("\n"), value.Line-1)
	spec = append(spec, bytes.Repeat([]byte(" "), value.Column-1)...)
	spec = append(spec, text[min(offsetOf(lines, value.Line, value.Column), end):end]...)
	if flow {
		spec = bytes.TrimSuffix(bytes.TrimRight(spec, " \t\r\n"), []byte(","))
	}
	return spec
}

// offsetOf is where the character at that line and column, both counted from 1, begins in the text.
func offsetOf(lines [][]byte, line, column int) int {
	offset := 0
	for _, before := range lines[:line-1] {
		offset += len(before)
	}
	characters := []rune(string(lines[line-1]))
	return offset + len(string(characters[:min(column-1, len(characters))]))
}

func valueOf(mapping *yaml.Node, key string) *yaml.Node {
	for n := 0; n+1 < len(mapping.Content); n += 2 {
		if mapping.Content[n].Value == key {
			return mapping.Content[n+1]
		}
	}
	return nil
}

// checkNames makes sure that every document is of the kind, or a spec alone, and has a legal name that no other has.
func checkNames(documents []document, what application) []finding {
	var findings []finding
	taken := map[string]string{}
	for _, d := range documents {
		reason := ""
		switch {
		case d.kind != "" && d.kind != what.kind:
			reason = fmt.Sprintf("is a %s, not a %s: it has a command of its own", d.kind, what.kind)
		case d.name == "":
			reason = fmt.Sprintf("has no name: give it by %s, or write a whole object with metadata.name", what.nameFlag)
		case what.validName(d.name) != nil:
			reason = "has a name that cannot be used: " + what.validName(d.name).Error()
		case taken[d.name] != "":
			reason = fmt.Sprintf("has the name %s, which a document in %s has too", d.name, taken[d.name])
		}
		taken[d.name] = d.file
		if reason != "" {
			findings = append(findings, finding{file: d.file, wrong: strictyaml.FieldError{Line: firstLine(d.body), Reason: "this document " + reason}})
		}
	}
	return findings
}

// firstLine is the line on which the text begins, counted from 1.
func firstLine(text []byte) int {
	for n, line := range bytes.Split(text, []byte("\n")) {
		if trimmed := bytes.TrimSpace(line); len(trimmed) > 0 && trimmed[0] != '#' {
			return n + 1
		}
	}
	return 1
}
