package strictyaml

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Value is one field of a document. A value that is absent reads as the zero value of every type, without an error: rules say what is
// required.
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

// CannotRead records that the field has no usable value. Rules about it are then skipped.
func (v Value) CannotRead(format string, args ...any) {
	v.found.add(v.item, v.path, format, args...)
	v.found.unreadable[v.path] = true
}

// usable says whether there is a value to read. Anchors and aliases are refused: a short text can't stand for a huge one.
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
	case v.isNull():
		v.CannotRead("has no value: write one, or leave the key out")
		return false
	}
	return true
}

// isNull says whether the key is there without a value.
func (v Value) isNull() bool { return v.tag() == nullTag && v.node.Anchor == "" }

// tag is the short tag of a scalar, "" for anything else.
func (v Value) tag() string {
	if v.node == nil || v.node.Kind != yaml.ScalarNode {
		return ""
	}
	return v.node.ShortTag()
}

// is says whether there is a usable value of a kind, which an error calls what.
func (v Value) is(kind yaml.Kind, what string) bool {
	if !v.usable() {
		return false
	}
	if v.node.Kind != kind {
		v.CannotRead("must be %s, not %s", what, describe(v.node))
		return false
	}
	return true
}

// List are the entries of a list.
func (v Value) List() []Value {
	if !v.is(yaml.SequenceNode, "a list") {
		return nil
	}
	entries := make([]Value, len(v.node.Content))
	for i, node := range v.node.Content {
		path := Index(v.path, i)
		v.found.lines[path] = node.Line
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

// Has says whether the value is a mapping with that key. It reports no errors.
func (v Value) Has(key string) bool {
	if v.node == nil || v.node.Kind != yaml.MappingNode {
		return false
	}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		if v.node.Content[i].Value == key {
			return true
		}
	}
	return false
}

// IsEmptyMapping says whether the value is {}.
func (v Value) IsEmptyMapping() bool {
	return v.node != nil && v.node.Kind == yaml.MappingNode && v.node.Anchor == "" && len(v.node.Content) == 0
}

// StringMap is a mapping of texts by keys of any name; a text may be empty. It is nil when there is none.
func (v Value) StringMap() map[string]string {
	if !v.is(yaml.MappingNode, "a mapping of texts") {
		return nil
	}
	m := v.readMapping(nil)
	all := make(map[string]string, len(m.keys))
	for _, key := range m.keys {
		if entry := m.Field(key); entry.usable() {
			all[key], _ = entry.text()
		}
	}
	return all
}

// Mapping is a value with keys.
type Mapping struct {
	value  Value
	fields map[string]*yaml.Node
	// keys are those that have a field, in the order of the document.
	keys []string
}

// Mapping reads the value as one with these keys. Keys are case-sensitive; unknown and repeated ones are errors.
func (v Value) Mapping(known ...string) Mapping {
	if !v.is(yaml.MappingNode, "a mapping with the keys "+strings.Join(known, ", ")) {
		return Mapping{value: v}
	}
	return v.readMapping(known)
}

// readMapping reads a node that is a mapping; without known keys it takes any.
func (v Value) readMapping(known []string) Mapping {
	m := Mapping{value: v, fields: map[string]*yaml.Node{}}
	first := map[string]int{}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key, node := v.node.Content[i], v.node.Content[i+1]
		if reason := badKey(key); reason != "" {
			m.refuseKey(key, v.path, reason)
			continue
		}
		path := Join(v.path, clip(key.Value))
		if line, repeated := first[key.Value]; repeated {
			m.refuseKey(key, path, repeatedKey(line, key.Line))
			continue
		}
		first[key.Value] = key.Line
		if known != nil && !slices.Contains(known, key.Value) {
			m.refuseKey(key, path, unknownKey(key.Value, known))
			continue
		}
		v.found.lines[Join(v.path, key.Value)] = key.Line
		m.fields[key.Value] = node
		m.keys = append(m.keys, key.Value)
	}
	return m
}

func (m Mapping) refuseKey(key *yaml.Node, path, reason string) {
	found := m.value.found
	found.errors = append(found.errors, FieldError{Item: m.value.item, Field: path, Line: key.Line, Reason: reason})
}

// Path is the path of the mapping.
func (m Mapping) Path() string { return m.value.path }

// Field is the value of a key; it may be absent.
func (m Mapping) Field(key string) Value {
	return Value{found: m.value.found, node: m.fields[key], item: m.value.item, path: Join(m.value.path, key)}
}

// Optional is the value of a key as Kubernetes reads it: a key without a value counts as absent.
func (m Mapping) Optional(key string) Value {
	v := m.Field(key)
	if v.isNull() {
		v.node = nil
	}
	return v
}

// badKey says why a key cannot be one, "" when it can.
func badKey(key *yaml.Node) string {
	switch {
	case key.Kind == yaml.AliasNode:
		return "has an alias (*" + clip(key.Value) + ") for a key, which is not supported: write the key out"
	case key.Kind != yaml.ScalarNode:
		return "has " + describe(key) + " for a key: a key is a word"
	case key.Anchor != "":
		return "has an anchor (&" + clip(key.Anchor) + ") on a key, which is not supported: write the key without it"
	case key.ShortTag() == "!!merge":
		return "has a merge key (<<), which is not supported: write the keys out"
	}
	return ""
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
