// Package manifest reads the documents that commands take by -f, strictly and with file and line, and applies them.
package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/v1alpha1"
)

const standardInput = "-"

// The kinds of objects that a file may hold.
const (
	KindService = "ReleaseService"
	KindPlan    = "DeployPlan"
	KindParty   = "Party"
)

// Document is one document of a file: the spec alone, or a whole object whose spec was taken out.
type Document struct {
	// File is what the document was read from, as people know it.
	File string
	// Name is the object's metadata.name, or else derived from the file's name; it may be empty.
	Name string
	// Kind is the object's kind, empty when the document is a spec alone.
	Kind string
	// Body is the spec. Blank lines stand in for what was before it in the file, so that its lines are those of the file.
	Body []byte
}

// ReadDocuments reads every document of every file, or none: what is wrong is reported for all of them at once.
func ReadDocuments(a *app.App, files []string) ([]Document, []apiclient.Finding, error) {
	var documents []Document
	var findings []apiclient.Finding
	for _, file := range files {
		text, shown, err := ReadFile(a, file)
		if err != nil {
			return nil, nil, err
		}
		before := len(documents) + len(findings)
		for _, part := range strictyaml.Split(text) {
			d, wrong := ReadDocument(shown, part)
			documents, findings = append(documents, d), append(findings, wrong...)
		}
		if len(documents)+len(findings) == before {
			findings = append(findings, apiclient.Finding{File: shown, Wrong: strictyaml.FieldError{Reason: "the file holds no document"}})
		}
		nameByFile(documents[min(before, len(documents)):], file)
	}
	return documents, findings, nil
}

// ReadFile reads a file, "-" for standard input; shown is how messages name it.
func ReadFile(a *app.App, file string) (text []byte, shown string, err error) {
	if file == standardInput {
		text, err = io.ReadAll(a.In)
		return text, "standard input", err
	}
	text, err = os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, "", fmt.Errorf("there is no file %s", file)
	}
	return text, file, err
}

// ReadMapping reads a document that is a mapping, strictly; an error has file and line.
func ReadMapping(file string, text []byte) (map[string]any, error) {
	fields := map[string]any{}
	err := sigsyaml.UnmarshalStrict(text, &fields)
	if err == nil {
		return fields, nil
	}
	reason, line := render.OneLine(err.Error()), FirstLine(text)
	for _, step := range []string{"error converting YAML to JSON: ", "error unmarshaling JSON: ", "while decoding JSON: ", "yaml: ",
		"unmarshal errors: ", "json: "} {
		reason = strings.TrimSpace(strings.TrimPrefix(reason, step))
	}
	if said := lineSaid.FindStringSubmatch(reason); said != nil {
		line, _ = strconv.Atoi(said[1])
		reason = strings.TrimPrefix(reason, said[0])
	}
	return nil, fmt.Errorf("%s:%d: %s", file, line, reason)
}

// lineSaid is how a YAML error begins that knows its line.
var lineSaid = regexp.MustCompile(`^line ([0-9]+): `)

// nameByFile names a document that is a spec alone after its file, which must then hold nothing else.
func nameByFile(documents []Document, file string) {
	if len(documents) != 1 || documents[0].Name != "" || documents[0].Kind != "" || file == standardInput {
		return
	}
	name := filepath.Base(file)
	for _, extension := range []string{".yaml", ".yml", ".json"} {
		name = strings.TrimSuffix(name, extension)
	}
	documents[0].Name = name
}

// ReadDocument tells a whole object from a spec alone. A text that is not sound is passed on as a spec: the strict reader says what
// is wrong.
func ReadDocument(file string, text []byte) (Document, []apiclient.Finding) {
	plain := Document{File: file, Body: text}
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

type objectReader struct {
	file     string
	text     []byte
	node     *yaml.Node
	findings []apiclient.Finding
}

func (r *objectReader) refuse(node *yaml.Node, field, format string, args ...any) {
	r.findings = append(r.findings, apiclient.Finding{File: r.file,
		Wrong: strictyaml.FieldError{Field: field, Line: node.Line, Reason: fmt.Sprintf(format, args...)}})
}

func (r *objectReader) read() Document {
	d := Document{File: r.file}
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
			d.Kind = value.Value
		case "metadata":
			d.Name = r.readMetadata(value)
		case "spec":
			d.Body = specText(r.text, r.node, n)
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
		r.refuse(r.node, "kind", "is missing: write %s, %s or %s", KindService, KindPlan, KindParty)
	case kind.Value != KindService && kind.Value != KindPlan && kind.Value != KindParty:
		r.refuse(kind, "kind", "must be %s, %s or %s, not %s", KindService, KindPlan, KindParty, strictyaml.Quote(kind.Value))
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
			r.refuse(key, "metadata.namespace", "cannot be chosen over the API, which keeps everything in the engine's own namespace: "+
				"remove it, or use kubectl")
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
func checkNames(documents []Document, what Application) []apiclient.Finding {
	var findings []apiclient.Finding
	taken := map[string]string{}
	for _, d := range documents {
		reason := ""
		switch {
		case d.Kind != "" && d.Kind != what.Kind:
			reason = fmt.Sprintf("is a %s, not a %s: it has a command of its own", d.Kind, what.Kind)
		case d.Name == "":
			reason = fmt.Sprintf("has no name: give it by %s, or write a whole object with metadata.name", what.NameFlag)
		case what.ValidName(d.Name) != nil:
			reason = "has a name that cannot be used: " + what.ValidName(d.Name).Error()
		case taken[d.Name] != "":
			reason = fmt.Sprintf("has the name %s, which a document in %s has too", d.Name, taken[d.Name])
		}
		taken[d.Name] = d.File
		if reason != "" {
			findings = append(findings, apiclient.Finding{File: d.File,
				Wrong: strictyaml.FieldError{Line: FirstLine(d.Body), Reason: "this document " + reason}})
		}
	}
	return findings
}

// FirstLine is the line on which the text begins, counted from 1.
func FirstLine(text []byte) int {
	for n, line := range bytes.Split(text, []byte("\n")) {
		if trimmed := bytes.TrimSpace(line); len(trimmed) > 0 && trimmed[0] != '#' {
			return n + 1
		}
	}
	return 1
}

// Locate adds to findings without a line the line on which their field stands in the document that was sent. What the catalogue says
// against a plan has a field and no line, since the catalogue does not see the text.
func Locate(body []byte, problems []client.FieldProblem) []client.FieldProblem {
	var root yaml.Node
	if yaml.Unmarshal(body, &root) != nil || len(root.Content) == 0 {
		return problems
	}
	for n := range problems {
		if problems[n].Line == 0 && problems[n].Field != "" {
			problems[n].Line = lineOf(root.Content[0], problems[n].Field)
		}
	}
	return problems
}

// lineOf is the line of a field such as "deployPlanItems[2].serviceId", or of what it would stand in when it is absent.
func lineOf(node *yaml.Node, field string) int {
	line := node.Line
	for part := range strings.SplitSeq(strings.ReplaceAll(field, "[", ".["), ".") {
		next := entryOf(node, part)
		if next == nil {
			return line
		}
		node, line = next, next.Line
	}
	return line
}

// entryOf is what stands in the node under a key, or under an index such as "[2]"; nil when nothing does.
func entryOf(node *yaml.Node, part string) *yaml.Node {
	if index, ok := strings.CutPrefix(part, "["); ok && node.Kind == yaml.SequenceNode {
		n, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
		if err != nil || n < 0 || n >= len(node.Content) {
			return nil
		}
		return node.Content[n]
	}
	if node.Kind != yaml.MappingNode {
		return nil
	}
	return valueOf(node, part)
}
