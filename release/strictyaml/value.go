package strictyaml

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// The short tags of YAML's types.
const (
	stringTag    = "!!str"
	integerTag   = "!!int"
	floatTag     = "!!float"
	booleanTag   = "!!bool"
	nullTag      = "!!null"
	timestampTag = "!!timestamp"
)

// Value is one field of a document. A value that is absent reads as the zero value of every type, without an error: rules say what is required.
type Value struct {
	found *Findings
	node  *yaml.Node
	item  int
	path  string
}

// Present says whether the field is there at all.
func (v Value) Present() bool { return v.node != nil }

// Path is the field's path.
func (v Value) Path() string { return v.path }

// OfItem marks the value, and all that is in it, as belonging to that item, counted from 1.
func (v Value) OfItem(item int) Value {
	v.item = item
	return v
}

// CannotRead records that the field has no usable value. Rules about it are then passed over.
func (v Value) CannotRead(format string, args ...any) {
	v.found.cannotRead(v.item, v.path, format, args...)
}

// List are the entries of a list.
func (v Value) List() []Value {
	if !v.usable() {
		return nil
	}
	if v.node.Kind != yaml.SequenceNode {
		v.CannotRead("must be a list, not %s", describe(v.node))
		return nil
	}
	entries := make([]Value, len(v.node.Content))
	for i, node := range v.node.Content {
		path := Index(v.path, i)
		v.found.place(path, node.Line)
		entries[i] = Value{found: v.found, node: node, item: v.item, path: path}
	}
	return entries
}

// Strings are the entries of a list of strings.
func (v Value) Strings() []string {
	var all []string
	for _, entry := range v.List() {
		all = append(all, entry.Text())
	}
	return all
}

// usable says whether there is a value to read. Anchors and aliases are refused: a value then stands where it is read, and a short text cannot
// stand for a huge one.
func (v Value) usable() bool {
	switch {
	case v.node == nil:
		return false
	case v.node.Kind == yaml.AliasNode:
		v.CannotRead("is an alias (*%s), which is not supported: write the value out", clip(v.node.Value))
		return false
	case v.node.Anchor != "":
		v.CannotRead("carries an anchor (&%s), which is not supported: write the value without it", clip(v.node.Anchor))
		return false
	case v.node.Kind == yaml.ScalarNode && v.node.ShortTag() == nullTag:
		v.CannotRead("has no value: write one, or leave the key out")
		return false
	}
	return true
}

// describe names what a node holds: "the number 3.5", "a list".
func describe(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	switch node.ShortTag() {
	case stringTag:
		return "the text " + Quote(node.Value)
	case integerTag, floatTag:
		return "the number " + clip(node.Value)
	case booleanTag:
		return "the truth value " + clip(node.Value)
	case nullTag:
		return "nothing"
	case timestampTag:
		return "the date " + clip(node.Value)
	}
	return "a value of the type " + clip(node.ShortTag())
}

// longest is how much of a document's own text an error repeats, in characters.
const longest = 80

// Quote is the text in quotes, shortened when it is long.
func Quote(text string) string { return fmt.Sprintf("%q", clip(text)) }

func clip(text string) string {
	runes := 0
	for at := range text {
		if runes == longest {
			return text[:at] + "…"
		}
		runes++
	}
	return text
}
