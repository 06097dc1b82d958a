package strictyaml

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Mapping is a value with keys.
type Mapping struct {
	value  Value
	fields map[string]*yaml.Node
	// keys are those that have a field, in the order of the document.
	keys []string
}

// Mapping reads the value as one with these keys. Keys are case-sensitive; unknown and repeated ones are errors.
func (v Value) Mapping(known ...string) Mapping {
	if !v.usable() {
		return Mapping{value: v}
	}
	if v.node.Kind != yaml.MappingNode {
		v.CannotRead("must be a mapping with the keys %s, not %s", strings.Join(known, ", "), describe(v.node))
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
		v.found.place(Join(v.path, key.Value), key.Line)
		m.fields[key.Value] = node
		m.keys = append(m.keys, key.Value)
	}
	return m
}

func (m Mapping) refuseKey(key *yaml.Node, path, reason string) {
	found := m.value.found
	found.errors = append(found.errors, FieldError{Item: m.value.item, Field: path, Line: key.Line, Reason: reason})
}

// Field is the value of a key; it may be absent.
func (m Mapping) Field(key string) Value {
	return Value{found: m.value.found, node: m.fields[key], item: m.value.item, path: Join(m.value.path, key)}
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
