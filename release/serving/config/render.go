// Package config renders the configuration templates of AppImages: text/template with paths into JSON variables, and bounds on its cost.
package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
)

// MaxSize bounds all configuration files of a party together, in bytes, and each template of one: a ConfigMap holds no more.
const MaxSize = 1 << 20

// Variables are what stands in for {{.NAME}}, by name in capitals.
type Variables struct {
	Values map[string]string
	// Unknown are the names whose values are only known in the party's cluster.
	Unknown map[string]bool
}

// Render renders a configuration template as Kuscia does: text/template over the variables, each as the inside of a JSON string, or empty
// if there is none. Beyond Go's syntax, {{{.NAME.field[0]}}} takes a value out of a variable that is JSON. Templates come from whoever
// registers an AppImage: they can neither loop nor call other templates, and their output is bounded.
func Render(text string, vars Variables) (string, error) {
	if len(text) > MaxSize {
		return "", fmt.Errorf("has %d bytes: at most %d are rendered", len(text), MaxSize)
	}
	text, paths, err := cutPaths(text)
	if err != nil {
		return "", err
	}
	left := &budget{bytes: workBudget}
	t, err := template.New("config").Option("missingkey=zero").Funcs(left.functions()).Parse(text)
	if err != nil {
		return "", fmt.Errorf("does not parse: %w", err)
	}
	if err := checkTemplate(t, vars); err != nil {
		return "", err
	}
	data, err := templateData(paths, vars, left)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	if err := t.Execute(&limitedWriter{to: &out, left: MaxSize}, data); err != nil {
		return "", fmt.Errorf("cannot be rendered: %w", err)
	}
	return out.String(), nil
}

// templateData are the variables as the template sees them, and the values at the extended paths by their text.
func templateData(paths map[string]path, vars Variables, left *budget) (map[string]string, error) {
	data := make(map[string]string, len(vars.Values)+len(paths))
	for name, value := range vars.Values {
		data[name] = insideString(value)
	}
	in := documents{values: vars.Values, read: map[string]any{}, left: left}
	for _, text := range slices.Sorted(maps.Keys(paths)) {
		p := paths[text]
		if vars.Unknown[p.variable] {
			return nil, unknownVariable(p.variable)
		}
		value, err := p.value(in)
		if err == nil {
			err = left.take(len(value))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		data[text] = value
	}
	return data, nil
}

func unknownVariable(name string) error {
	return fmt.Errorf("uses %s, whose value comes from a Secret, a ConfigMap or the pod itself and is not known when the file is rendered: "+
		"give it a plain value, or let the application read it from its environment", name)
}

// insideString is the value as it stands in a JSON string, without the quotes around it.
func insideString(value string) string {
	return strings.TrimSuffix(strings.TrimPrefix(asJSON(value), `"`), `"`)
}

// asJSON is a value that was read from JSON, or a text.
func asJSON(value any) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value)
	return strings.TrimSuffix(out.String(), "\n")
}

// checkTemplate refuses what a configuration file has no use for and what could run without end.
func checkTemplate(t *template.Template, vars Variables) error {
	for _, other := range t.Templates() {
		if other.Name() != t.Name() {
			return fmt.Errorf("defines the template %q: write a configuration file without define and block", other.Name())
		}
	}
	if t.Tree == nil {
		return nil
	}
	return checkNode(vars, t.Root)
}

func checkNodes[N parse.Node](vars Variables, nodes ...N) error {
	for _, n := range nodes {
		if err := checkNode(vars, n); err != nil {
			return err
		}
	}
	return nil
}

func checkNode(vars Variables, node parse.Node) error {
	switch n := node.(type) {
	case *parse.ListNode:
		if n != nil {
			return checkNodes(vars, n.Nodes...)
		}
	case *parse.ActionNode:
		return checkNode(vars, n.Pipe)
	case *parse.IfNode:
		return checkNodes[parse.Node](vars, n.Pipe, n.List, n.ElseList)
	case *parse.WithNode:
		return checkNodes[parse.Node](vars, n.Pipe, n.List, n.ElseList)
	case *parse.RangeNode:
		return fmt.Errorf("line %d: range is not supported: a configuration file has only plain values to go over", n.Line)
	case *parse.TemplateNode:
		return fmt.Errorf("line %d: template is not supported: write its text in its place", n.Line)
	case *parse.PipeNode:
		if n != nil {
			return checkNodes(vars, n.Cmds...)
		}
	case *parse.CommandNode:
		return checkNodes(vars, n.Args...)
	case *parse.ChainNode:
		return checkNode(vars, n.Node)
	case *parse.FieldNode:
		if len(n.Ident) > 0 && vars.Unknown[n.Ident[0]] {
			return unknownVariable(n.Ident[0])
		}
	case *parse.VariableNode:
		if len(n.Ident) > 1 && vars.Unknown[n.Ident[1]] {
			return unknownVariable(n.Ident[1])
		}
	}
	return nil
}
