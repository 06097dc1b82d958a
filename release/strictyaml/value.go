package strictyaml

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

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

// Text is a string that is not empty.
func (v Value) Text() string {
	if !v.usable() {
		return ""
	}
	text, ok := v.text()
	if ok && text == "" {
		v.CannotRead("is empty: write a value, or leave the key out")
	}
	return text
}

// FreeText is a string that people write for people: it may be empty, or without a value.
func (v Value) FreeText() string {
	if v.node != nil && v.node.Anchor == "" && v.node.Kind == yaml.ScalarNode && v.node.ShortTag() == nullTag {
		return ""
	}
	if !v.usable() {
		return ""
	}
	text, _ := v.text()
	return text
}

func (v Value) text() (text string, ok bool) {
	if v.node.Kind == yaml.ScalarNode {
		switch v.node.ShortTag() {
		// YAML 1.2 has no dates: what the library takes for one is a text.
		case stringTag, timestampTag:
			return v.node.Value, true
		case integerTag, floatTag, booleanTag:
			v.CannotRead("must be text, not %s: put it in quotes", describe(v.node))
			return "", false
		}
	}
	v.CannotRead("must be text, not %s", describe(v.node))
	return "", false
}

// decimal is a whole number as everybody reads it: no other base, no separators, no leading zero (which YAML 1.1 reads as octal).
var decimal = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*)$`)

// Integer is a whole number of 64 bits from least to most, both included.
func (v Value) Integer(least, most int64) int64 {
	if !v.usable() {
		return 0
	}
	tag := v.node.ShortTag()
	if v.node.Kind != yaml.ScalarNode || tag != integerTag && tag != floatTag {
		hint := ""
		if tag == stringTag && decimal.MatchString(v.node.Value) {
			hint = ": leave out the quotes"
		}
		v.CannotRead("must be a whole number, not %s%s", describe(v.node), hint)
		return 0
	}
	if !decimal.MatchString(v.node.Value) {
		v.CannotRead("must be a whole number in decimal digits without leading zeros, not %s", clip(v.node.Value))
		return 0
	}
	number, err := strconv.ParseInt(v.node.Value, 10, 64)
	if err != nil || number < least || number > most {
		v.CannotRead("must be from %d to %d, not %s", least, most, clip(v.node.Value))
		return 0
	}
	return number
}

// digits is a number without sign, fraction or exponent, of any length.
var digits = regexp.MustCompile(`^[0-9]+$`)

// Name is a text, or a whole number in the very spelling of the document: 0111 stays "0111".
func (v Value) Name() string {
	if !v.usable() {
		return ""
	}
	tag := v.node.ShortTag()
	if v.node.Kind == yaml.ScalarNode && (tag == integerTag || tag == floatTag && digits.MatchString(v.node.Value)) {
		return v.node.Value
	}
	if v.node.Kind == yaml.ScalarNode && (tag == floatTag || tag == booleanTag) {
		v.CannotRead("must be a whole number or text, not %s: if that is the name, put it in quotes", describe(v.node))
		return ""
	}
	if tag != stringTag && tag != timestampTag {
		v.CannotRead("must be a whole number or text, not %s", describe(v.node))
		return ""
	}
	return v.Text()
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
