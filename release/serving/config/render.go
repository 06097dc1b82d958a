// Package config renders the configuration templates of AppImages: text/template with paths into JSON variables, and
// bounds on its cost.
package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
)

// MaxSize is the maximum size in bytes of all configuration files of a party together, and of each template: a
// ConfigMap holds no more.
const MaxSize = 1 << 20

// Variables are the values for {{.NAME}}, by upper-case name.
type Variables struct {
	Values map[string]string
	// Unknown are the names whose values are known only in the party's cluster.
	Unknown map[string]bool
}

// Render renders a configuration template as Kuscia does: text/template over the variables. Each value is inserted as
// the content of a JSON string; a missing variable is empty. In addition to Go's syntax, {{{.NAME.field[0]}}} extracts
// a value from a variable that is JSON.
//
// Templates are untrusted input of the author of an AppImage: they can neither loop nor call other templates, and their
// output is bounded.
func Render(text string, vars Variables) (string, error) {
	if len(text) > MaxSize {
		return "", fmt.Errorf("has %d bytes: at most %d are rendered", len(text), MaxSize)
	}
	text, paths, err := replacePaths(text)
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

// templateData returns the variables as the template sees them, and the values of the extended paths by their text.
func templateData(paths map[string]path, vars Variables, left *budget) (map[string]string, error) {
	data := make(map[string]string, len(vars.Values)+len(paths))
	for name, value := range vars.Values {
		data[name] = jsonStringContent(value)
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
	return fmt.Errorf("uses %s, whose value comes from a Secret, a ConfigMap or the pod itself and is not known when "+
		"the file is rendered: give it a plain value, or let the application read it from its environment", name)
}

// jsonStringContent returns the value as the content of a JSON string, without the enclosing quotes.
func jsonStringContent(value string) string {
	return strings.TrimSuffix(strings.TrimPrefix(asJSON(value), `"`), `"`)
}

// asJSON encodes a string, or a value that was decoded from JSON.
func asJSON(value any) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value)
	return strings.TrimSuffix(out.String(), "\n")
}

// checkTemplate refuses constructs that a configuration file does not need or that could run without end.
func checkTemplate(t *template.Template, vars Variables) error {
	for _, other := range t.Templates() {
		if other.Name() != t.Name() {
			return fmt.Errorf("defines the template %q: write a configuration file without define and block",
				other.Name())
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
		return fmt.Errorf("line %d: range is not supported: the values of a configuration file are not lists", n.Line)
	case *parse.TemplateNode:
		return fmt.Errorf("line %d: template is not supported: insert its text directly", n.Line)
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

// workBudget is how much text the functions and extended paths of one template may generate, in bytes, whether or not
// it reaches the output.
const workBudget = 4 * MaxSize

// budget bounds the text that a template generates: printing the result of an earlier print doubles it with each line.
type budget struct{ bytes int }

// functions returns replacements for the functions of text/template that generate text: the same functions within the
// budget.
func (b *budget) functions() template.FuncMap {
	limited := func(print func(...any) string) any {
		return func(args ...any) (string, error) { return b.spend(print, args) }
	}
	return template.FuncMap{
		"print": limited(fmt.Sprint), "println": limited(fmt.Sprintln), "html": limited(template.HTMLEscaper),
		"js":       limited(template.JSEscaper),
		"urlquery": limited(template.URLQueryEscaper),
		"printf": func(format string, args ...any) (string, error) {
			wide, err := formatSize(format)
			if err == nil {
				err = b.take(wide)
			}
			if err != nil {
				return "", err
			}
			return b.spend(func(args ...any) string { return fmt.Sprintf(format, args...) }, args)
		},
	}
}

var errTooMuch = errors.New("the template generates too much text: insert the values directly")

// maxGrowth is the maximum number of bytes that an escaper or a verb makes of one byte.
const maxGrowth = 16

func (b *budget) spend(print func(...any) string, args []any) (string, error) {
	size := 0
	for _, a := range args {
		size += sizeOf(a)
	}
	// Check the maximum size before the text is generated, then charge the actual size.
	if size > b.bytes/maxGrowth {
		return "", errTooMuch
	}
	text := print(args...)
	return text, b.take(len(text))
}

func (b *budget) take(n int) error {
	if n > b.bytes {
		return errTooMuch
	}
	b.bytes -= n
	return nil
}

// sizeOf estimates the text size of an argument.
func sizeOf(argument any) int {
	switch a := argument.(type) {
	case string:
		return len(a)
	case map[string]string:
		size := 0
		for name, value := range a {
			size += len(name) + len(value) + 2
		}
		return size
	}
	return 32
}

// formatSize returns how much text a format generates by itself. Syntax that repeats an argument or takes a width from
// one is refused.
func formatSize(format string) (int, error) {
	if strings.ContainsAny(format, "*[") {
		return 0, errors.New("printf: * and [n] are not supported")
	}
	size, number := len(format), 0
	for _, c := range []byte(format) {
		if c < '0' || c > '9' {
			number = 0
			continue
		}
		number = min(number*10+int(c-'0'), MaxSize)
		size = min(size+number, MaxSize*maxGrowth)
	}
	return size, nil
}

// limitedWriter fails a write beyond its limit.
type limitedWriter struct {
	to   io.Writer
	left int
}

func (w *limitedWriter) Write(p []byte) (int, error) {
	if len(p) > w.left {
		return 0, fmt.Errorf("it becomes larger than %d bytes", MaxSize)
	}
	w.left -= len(p)
	return w.to.Write(p)
}
