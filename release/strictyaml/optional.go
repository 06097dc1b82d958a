package strictyaml

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// Optional is the value of a key as Kubernetes reads it: a key without a value counts as absent.
func (m Mapping) Optional(key string) Value {
	v := m.Field(key)
	if v.node != nil && v.node.Kind == yaml.ScalarNode && v.node.Anchor == "" && v.node.ShortTag() == nullTag {
		v.node = nil
	}
	return v
}

// Has says whether the value is a mapping with that key. It reads nothing: what is wrong with the value is not said.
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

// Truth is true or false.
func (v Value) Truth() bool {
	if !v.usable() {
		return false
	}
	if v.node.Kind != yaml.ScalarNode || v.node.ShortTag() != booleanTag {
		v.CannotRead("must be true or false, not %s", describe(v.node))
		return false
	}
	return strings.EqualFold(v.node.Value, "true")
}

// NumberOrText is a whole number from least to most, or a text; isText says which.
func (v Value) NumberOrText(least, most int64) (number int64, text string, isText bool) {
	if v.node != nil && v.node.Kind == yaml.ScalarNode && v.node.ShortTag() == stringTag {
		return 0, v.Text(), true
	}
	return v.Integer(least, most), "", false
}

// StringMap is a mapping of texts by keys of any name; a text may be empty. It is nil when there is none.
func (v Value) StringMap() map[string]string {
	if !v.usable() {
		return nil
	}
	if v.node.Kind != yaml.MappingNode {
		v.CannotRead("must be a mapping of texts, not %s", describe(v.node))
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
