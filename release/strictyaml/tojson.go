package strictyaml

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// deepest is how deep mappings and lists may stand in one another in a value that is kept as JSON.
const deepest = 64

// Object is a mapping that is kept whole, as JSON; nil when it is absent or no mapping. Repeated keys, anchors and aliases are errors in it too.
func (v Value) Object() []byte {
	if !v.usable() {
		return nil
	}
	if v.node.Kind != yaml.MappingNode {
		v.CannotRead("must be a mapping, not %s", describe(v.node))
		return nil
	}
	raw, err := json.Marshal(v.plain(0))
	if err != nil {
		v.CannotRead("cannot be written as JSON: %s", err)
		return nil
	}
	return raw
}

// plain is the value as encoding/json has it. Unlike elsewhere nulls are legal: they mean something to whoever the object is for.
func (v Value) plain(depth int) any {
	if v.node.Kind == yaml.ScalarNode && v.node.ShortTag() == nullTag && v.node.Anchor == "" {
		return nil
	}
	if !v.usable() {
		return nil
	}
	if depth > deepest {
		v.CannotRead("stands more than %d levels deep", deepest)
		return nil
	}
	switch v.node.Kind {
	case yaml.MappingNode:
		return v.plainMapping(depth)
	case yaml.SequenceNode:
		list := []any{}
		for _, entry := range v.List() {
			list = append(list, entry.plain(depth+1))
		}
		return list
	}
	return v.plainScalar()
}

func (v Value) plainMapping(depth int) map[string]any {
	m := v.readMapping(nil)
	plain := make(map[string]any, len(m.keys))
	for _, key := range m.keys {
		plain[key] = m.Field(key).plain(depth + 1)
	}
	return plain
}

func (v Value) plainScalar() any {
	value := v.node.Value
	switch v.node.ShortTag() {
	case stringTag, timestampTag:
		return value
	case booleanTag:
		return strings.EqualFold(value, "true")
	case integerTag:
		bare := strings.ReplaceAll(value, "_", "")
		if n, err := strconv.ParseInt(bare, 0, 64); err == nil {
			return n
		}
		if n, err := strconv.ParseUint(bare, 0, 64); err == nil {
			return n
		}
	case floatTag:
		if n, err := strconv.ParseFloat(strings.ReplaceAll(value, "_", ""), 64); err == nil && !math.IsInf(n, 0) && !math.IsNaN(n) {
			return n
		}
	}
	v.CannotRead("must be text, a number, true or false, not %s", describe(v.node))
	return nil
}
