// Package manifest reads the documents of -f strictly, reports errors with file and line, and applies the documents.
package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	sigsyaml "sigs.k8s.io/yaml"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/v1alpha1"
)

const standardInput = "-"

// The kinds of Slipway objects in a file.
const (
	KindService = "ReleaseService"
	KindPlan    = "DeployPlan"
	KindParty   = "Party"
)

// Document is one document of a file: a bare spec, or an object whose spec was extracted.
type Document struct {
	// File is the file as shown in messages.
	File string
	// Name is the object's metadata.name, or the base name of the file; it may be empty.
	Name string
	// Kind is the object's kind, empty for a bare spec.
	Kind string
	// Body is the spec, preceded by blank lines so that its line numbers are those of the file.
	Body []byte
	// Request is a request of Kuscia's API, from which the spec has to be made; Body is its text.
	Request proto.Message
	// AffinityMode is what an object sets as the affinity mode of a serving; "" if it sets none.
	AffinityMode string
}

// reader reads one document of a file, or returns its errors.
type reader func(file string, text []byte) (Document, []apiclient.Finding)

// ReadDocuments reads all documents of all files and returns the errors of all of them together.
func ReadDocuments(a *app.App, files []string) ([]Document, []apiclient.Finding, error) {
	return readDocuments(a, files, ReadDocument)
}

func readDocuments(a *app.App, files []string, read reader) ([]Document, []apiclient.Finding, error) {
	var documents []Document
	var findings []apiclient.Finding
	for _, file := range files {
		text, shown, err := ReadFile(a, file)
		if err != nil {
			return nil, nil, err
		}
		before := len(documents) + len(findings)
		for _, part := range strictyaml.Split(text) {
			d, wrong := read(shown, part)
			documents, findings = append(documents, d), append(findings, wrong...)
		}
		if len(documents)+len(findings) == before {
			findings = append(findings, finding(shown, 0, "", "the file is empty")...)
		}
		nameByFile(documents[min(before, len(documents)):], file)
	}
	return documents, findings, nil
}

// ReadFile reads a file, or standard input for "-"; shown is its name in messages.
func ReadFile(a *app.App, file string) (text []byte, shown string, err error) {
	if file == standardInput {
		text, err = io.ReadAll(a.In)
		return text, "standard input", err
	}
	text, err = os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, "", fmt.Errorf("file not found: %s", file)
	}
	return text, file, err
}

// ReadMapping reads a document that is a mapping, strictly. Errors have file and line.
func ReadMapping(file string, text []byte) (map[string]any, error) {
	fields := map[string]any{}
	err := sigsyaml.UnmarshalStrict(text, &fields)
	if err == nil {
		return fields, nil
	}
	reason, line := render.OneLine(err.Error()), FirstLine(text)
	for _, step := range []string{"error converting YAML to JSON: ", "error unmarshaling JSON: ",
		"while decoding JSON: ", "yaml: ", "unmarshal errors: ", "json: "} {
		reason = strings.TrimSpace(strings.TrimPrefix(reason, step))
	}
	if prefix := linePrefix.FindStringSubmatch(reason); prefix != nil {
		line, _ = strconv.Atoi(prefix[1])
		reason = strings.TrimPrefix(reason, prefix[0])
	}
	return nil, fmt.Errorf("%s:%d: %s", file, line, reason)
}

// linePrefix matches the line number at the start of a YAML error.
var linePrefix = regexp.MustCompile(`^line ([0-9]+): `)

// nameByFile names a bare spec after its file, if it is the only document there.
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

// ReadDocument reads an object or a bare spec. Invalid YAML is returned as a spec, because the strict reader of specs
// reports the errors.
func ReadDocument(file string, text []byte) (Document, []apiclient.Finding) {
	mapping, _ := mappingOf(text)
	if !isObject(mapping) {
		return Document{File: file, Body: text}, nil
	}
	object := &objectReader{file: file, text: text, node: mapping, version: v1alpha1.GroupVersion.String(),
		kinds: []string{KindService, KindPlan, KindParty}}
	d := object.read()
	return d, object.findings
}

// mappingOf returns the mapping that a document is; nil if it is another value.
func mappingOf(text []byte) (*yaml.Node, error) {
	var root yaml.Node
	err := yaml.Unmarshal(text, &root)
	if err != nil || len(root.Content) == 0 || root.Content[0].Kind != yaml.MappingNode {
		return nil, err
	}
	return root.Content[0], nil
}

// isObject reports whether a mapping is an object of Kubernetes.
func isObject(mapping *yaml.Node) bool {
	return mapping != nil && (valueOf(mapping, "apiVersion") != nil || valueOf(mapping, "kind") != nil)
}

type objectReader struct {
	file string
	text []byte
	node *yaml.Node
	// version and kinds are those of legal objects.
	version string
	kinds   []string
	// accepts, if not nil, reports whether an entry of the metadata, such as "labels.app", can be set or ignored.
	accepts  func(field, value string) bool
	findings []apiclient.Finding
}

func (r *objectReader) reject(node *yaml.Node, field, format string, args ...any) {
	r.findings = append(r.findings, finding(r.file, node.Line, field, format, args...)...)
}

func (r *objectReader) read() Document {
	d := Document{File: r.file}
	if !r.isLegalKind() {
		return d
	}
	known := map[string]bool{}
	for n := 0; n+1 < len(r.node.Content); n += 2 {
		key, value := r.node.Content[n], r.node.Content[n+1]
		if known[key.Value] {
			r.reject(key, key.Value, "is set twice")
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
			// The engine writes the status, so files from "kubectl get -o yaml" contain it.
		default:
			r.reject(key, key.Value, "is unknown: the fields of an object are apiVersion, kind, metadata and spec")
		}
	}
	for _, key := range []string{"metadata", "spec"} {
		if !known[key] {
			r.reject(r.node, key, "is missing: the fields of an object are apiVersion, kind, metadata and spec")
		}
	}
	return d
}

// isLegalKind reports whether the object is of a legal kind. Objects of other kinds are not checked further.
func (r *objectReader) isLegalKind() bool {
	version, kind := valueOf(r.node, "apiVersion"), valueOf(r.node, "kind")
	last := len(r.kinds) - 1
	kinds := strings.TrimPrefix(strings.Join(r.kinds[:last], ", ")+" or "+r.kinds[last], " or ")
	switch {
	case version == nil:
		r.reject(r.node, "apiVersion", "is missing: must be %s", r.version)
	case version.Value != r.version:
		r.reject(version, "apiVersion", "must be %s, not %s", r.version, strictyaml.Quote(version.Value))
	case kind == nil:
		r.reject(r.node, "kind", "is missing: must be %s", kinds)
	case !slices.Contains(r.kinds, kind.Value):
		r.reject(kind, "kind", "must be %s, not %s", kinds, strictyaml.Quote(kind.Value))
	default:
		return true
	}
	return false
}

// readMetadata reads the name. It ignores fields that the API server writes, and rejects fields that the API cannot
// set.
func (r *objectReader) readMetadata(node *yaml.Node) (name string) {
	for n := 0; n+1 < len(node.Content); n += 2 {
		key, value := node.Content[n], node.Content[n+1]
		switch key.Value {
		case "name":
			name = value.Value
		case "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink":
		default:
			r.checkMetadata(key, key.Value, value)
		}
	}
	if name == "" {
		r.reject(node, "metadata.name", "is missing")
	}
	return name
}

// checkMetadata rejects a field of the metadata that the API cannot set; labels and annotations one by one if some of
// them are accepted.
func (r *objectReader) checkMetadata(key *yaml.Node, field string, value *yaml.Node) {
	reason := "cannot be set through the API: remove it, or use kubectl"
	switch {
	case r.accepts != nil && value.Kind == yaml.MappingNode:
		for n := 0; n+1 < len(value.Content); n += 2 {
			r.checkMetadata(value.Content[n], field+"."+value.Content[n].Value, value.Content[n+1])
		}
		return
	case r.accepts != nil && r.accepts(field, value.Value):
		return
	case field == "namespace":
		reason = "cannot be set through the API, which stores everything in the engine's namespace: remove it, or " +
			"use kubectl"
	}
	r.reject(key, "metadata."+field, "%s", reason)
}

// specText extracts the value of entry n of the mapping. It replaces the text before it by blanks, so that line numbers
// are preserved.
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

// offsetOf returns the byte offset of a line and column, both counted from 1.
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

// checkNames checks that every document is a bare spec or of the right kind, and has a valid and unique name.
func checkNames(documents []Document, what Applier) []apiclient.Finding {
	var findings []apiclient.Finding
	taken := map[string]string{}
	for _, d := range documents {
		reason := ""
		switch {
		case d.Kind != "" && d.Kind != what.Kind:
			reason = fmt.Sprintf("is a %s, not a %s: apply it with its own command", d.Kind, what.Kind)
		case d.Name == "":
			reason = fmt.Sprintf("has no name: set %s, or use an object with metadata.name", what.NameFlag)
		case what.ValidName(d.Name) != nil:
			reason = "has an invalid name: " + what.ValidName(d.Name).Error()
		case taken[d.Name] != "":
			reason = fmt.Sprintf("has the name %s, which is already used by a document in %s", d.Name, taken[d.Name])
		}
		taken[d.Name] = d.File
		if reason != "" {
			findings = append(findings, finding(d.File, FirstLine(d.Body), "", "this document %s", reason)...)
		}
	}
	return findings
}

// FirstLine returns the number of the first line with content, counted from 1.
func FirstLine(text []byte) int {
	for n, line := range bytes.Split(text, []byte("\n")) {
		if trimmed := bytes.TrimSpace(line); len(trimmed) > 0 && trimmed[0] != '#' {
			return n + 1
		}
	}
	return 1
}

// Locate sets the line of problems that have only a field, from the document that was sent. Catalogue errors have no
// line, because the engine checks the decoded plan.
func Locate(body []byte, problems []client.FieldProblem) []client.FieldProblem {
	root, found, ok := strictyaml.Parse(body)
	if !ok {
		return problems
	}
	root.Object() // finds the lines
	for n := range problems {
		if problems[n].Line == 0 && problems[n].Field != "" {
			problems[n].Line = found.Line(problems[n].Field)
		}
	}
	return problems
}
