package strictyaml

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Value is one field of a document. An absent value reads as the zero value of every type, without an error: rules
// check what is required.
type Value struct {
	found *Findings
	node  *yaml.Node
	item  int
	path  string
}

// Present reports whether the field exists.
func (v Value) Present() bool { return v.node != nil }

// Path returns the field's path.
func (v Value) Path() string { return v.path }

// OfItem assigns the value and everything in it to an item, counted from 1.
func (v Value) OfItem(item int) Value {
	v.item = item
	return v
}

// CannotRead records that the field has no usable value. Rules about it are then skipped.
func (v Value) CannotRead(format string, args ...any) {
	v.found.add(v.item, v.path, format, args...)
	v.found.unreadable[v.path] = true
}

// Unreadable reports whether an error says that the value, or one around it, cannot be read.
func (v Value) Unreadable() bool { return v.found.Unreadable(v.path) }

// usable reports whether there is a value to read. Anchors and aliases are rejected: otherwise a short text could
// expand to a huge one.
func (v Value) usable() bool {
	switch {
	case v.node == nil:
		return false
	case v.node.Kind == yaml.AliasNode:
		v.CannotRead("is an alias (*%s), which is not supported: write the value out", clip(v.node.Value))
		return false
	case v.node.Anchor != "":
		v.CannotRead("has an anchor (&%s), which is not supported: write the value without it", clip(v.node.Anchor))
		return false
	case v.isNull():
		v.CannotRead("has no value: write one, or leave the key out")
		return false
	}
	return true
}

// isNull reports whether the key exists without a value.
func (v Value) isNull() bool { return v.tag() == nullTag && v.node.Anchor == "" }

// tag returns the short tag of a scalar, "" for anything else.
func (v Value) tag() string {
	if v.node == nil || v.node.Kind != yaml.ScalarNode {
		return ""
	}
	return v.node.ShortTag()
}

// is reports whether the value is usable and of a kind; what is the kind's name in errors.
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

// List returns the entries of a list.
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

// Len returns the number of entries of a list, without reading them; 0 for any other value.
func (v Value) Len() int {
	if v.node == nil || v.node.Kind != yaml.SequenceNode {
		return 0
	}
	return len(v.node.Content)
}

// Strings returns the entries of a list of strings.
func (v Value) Strings() []string {
	var all []string
	for _, entry := range v.List() {
		all = append(all, entry.Text())
	}
	return all
}

// Has reports whether the value is a mapping with that key. It records no errors.
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

// IsEmptyMapping reports whether the value is {}.
func (v Value) IsEmptyMapping() bool {
	return v.node != nil && v.node.Kind == yaml.MappingNode && v.node.Anchor == "" && len(v.node.Content) == 0
}

// StringMap returns a mapping of texts with arbitrary keys; a text may be empty. It is nil if the field is absent.
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
	// keys are the keys that have a field, in the order of the document.
	keys []string
}

// Mapping reads the value as a mapping with these keys. Keys are case-sensitive; unknown and repeated ones are errors.
func (v Value) Mapping(known ...string) Mapping {
	if !v.is(yaml.MappingNode, "a mapping with the keys "+strings.Join(known, ", ")) {
		return Mapping{value: v}
	}
	return v.readMapping(known)
}

// readMapping reads a mapping node; with nil it accepts any keys.
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
			if v.found.hasRoom() { // else the search for the word that was meant is useless
				m.refuseKey(key, path, v.found.unknownKey(key.Value, known))
			}
			continue
		}
		v.found.lines[Join(v.path, key.Value)] = key.Line
		m.fields[key.Value] = node
		m.keys = append(m.keys, key.Value)
	}
	return m
}

func (m Mapping) refuseKey(key *yaml.Node, path, reason string) {
	if found := m.value.found; found.hasRoom() {
		found.errors = append(found.errors, FieldError{Item: m.value.item, Field: path, Line: key.Line, Reason: reason})
	}
}

// Field returns the value of a key; it may be absent.
func (m Mapping) Field(key string) Value {
	return Value{found: m.value.found, node: m.fields[key], item: m.value.item, path: Join(m.value.path, key)}
}

// Optional returns the value of a key as Kubernetes reads it: a key without a value counts as absent.
func (m Mapping) Optional(key string) Value {
	v := m.Field(key)
	if v.isNull() {
		v.node = nil
	}
	return v
}

// badKey returns why a key is not allowed, "" if it is.
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

// describe returns what a node contains: "the number 3.5", "a list".
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
		return "the boolean " + clip(node.Value)
	case nullTag:
		return "nothing"
	case timestampTag:
		return "the date " + clip(node.Value)
	}
	return "a value of the type " + clip(node.ShortTag())
}

// maxQuoted is how many characters of the document's text an error quotes.
const maxQuoted = 80

// Quote returns the text in quotes, shortened if it is long.
func Quote(text string) string { return fmt.Sprintf("%q", clip(text)) }

func clip(text string) string {
	runes := 0
	for at := range text {
		if runes == maxQuoted {
			return text[:at] + "…"
		}
		runes++
	}
	return text
}

// Decode reads a document into a struct by the JSON names of its fields, as Kubernetes reads an object: a key without a
// value counts as absent. In structs of T's package, a field without omitempty is required, as in a custom resource.
func Decode[T any](text []byte) (target T, wrong Errors) {
	root, found, ok := Parse(text)
	if ok {
		t := reflect.TypeFor[T]()
		root.check(t, t.PkgPath())
	}
	if len(found.errors) == 0 {
		root.decode(&target)
	}
	return target, found.Sorted()
}

// decode reads a value as JSON.
func (v Value) decode(target any) {
	raw, err := json.Marshal(v.plain(0))
	if err == nil {
		err = json.Unmarshal(raw, target)
	}
	if err != nil && !v.found.Unreadable(v.path) {
		v.CannotRead("cannot be read: %s", err)
	}
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// check records everything that prevents the value from being read as a type. own is the package with required fields.
func (v Value) check(t reflect.Type, own string) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case !v.Present():
	case reflect.PointerTo(t).Implements(unmarshaler): // such as a quantity
		v.decode(reflect.New(t).Interface())
	case t.Kind() == reflect.Struct:
		v.checkStruct(t, own)
	case t.Kind() == reflect.Slice:
		for _, entry := range v.List() {
			entry.check(t.Elem(), own)
		}
	case t.Kind() == reflect.Map && v.is(yaml.MappingNode, "a mapping"):
		m := v.readMapping(nil)
		for _, key := range m.keys {
			m.Field(key).check(t.Elem(), own)
		}
	case t.Kind() == reflect.String && v.usable():
		v.text()
	case t.Kind() == reflect.Bool:
		v.Bool()
	case v.isQuotedNumber():
		v.CannotRead("must be a whole number, not %s: leave out the quotes", describe(v.node)) // as Kubernetes reads it
	case t.Kind() == reflect.Int32:
		v.Integer(math.MinInt32, math.MaxInt32)
	case t.Kind() == reflect.Int64:
		v.Integer(math.MinInt64, math.MaxInt64)
	}
}

func (v Value) checkStruct(t reflect.Type, own string) {
	names, fields := jsonFields(t)
	m := v.Mapping(names...)
	for _, name := range names {
		value, field := m.Optional(name), fields[name]
		switch required := t.PkgPath() == own && !strings.Contains(field.Tag.Get("json"), "omitempty"); {
		case required && !value.Present():
			v.found.Refuse(v.item, value.path, "is missing")
		case required && field.Type.Kind() == reflect.String:
			value.Text()
		default:
			value.check(field.Type, own)
		}
	}
}

// jsonFields returns the fields of a struct by their JSON names, and the names in order.
func jsonFields(t reflect.Type) (names []string, fields map[string]reflect.StructField) {
	fields = map[string]reflect.StructField{}
	for _, field := range reflect.VisibleFields(t) { // includes those of embedded structs
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			names, fields[name] = append(names, name), field
		}
	}
	return names, fields
}

// Into reads the keys of the mapping into the struct that target points to, by the JSON names of its fields. A text has
// a character at least. An integer is from 1 to what the field's tag "most" says. A field with the tag "form" is a
// duration: "seconds" for an integer, "duration" for a text. A type with a JSON form of its own is a mapping.
func (m Mapping) Into(target any) {
	into := reflect.ValueOf(target).Elem()
	names, fields := jsonFields(into.Type())
	for _, name := range names {
		m.Field(name).into(into.FieldByIndex(fields[name].Index), fields[name].Tag)
	}
}

func (v Value) into(target reflect.Value, tag reflect.StructTag) {
	switch t := target.Type(); {
	case !v.Present():
	case t.Implements(unmarshaler) || reflect.PointerTo(t).Implements(unmarshaler):
		if raw := v.Object(); raw != nil {
			v.found.Check(v.item, v.path, json.Unmarshal(raw, target.Addr().Interface()))
		}
	case t.Kind() == reflect.Pointer:
		target.Set(reflect.New(t.Elem()))
		v.into(target.Elem(), tag)
	case t.Kind() == reflect.Struct:
		names, _ := jsonFields(t)
		v.Mapping(names...).Into(target.Addr().Interface())
	case t.Kind() == reflect.Slice:
		for _, entry := range v.List() {
			target.Set(reflect.Append(target, reflect.Zero(t.Elem())))
			entry.into(target.Index(target.Len()-1), "")
		}
	case tag.Get("form") == "duration":
		target.SetString(v.Duration())
	case t.Kind() == reflect.String:
		target.SetString(v.Text())
	case t.Kind() == reflect.Bool:
		target.SetBool(v.Bool())
	default:
		largest := int64(1)<<(t.Bits()-1) - 1
		if limit, err := strconv.ParseInt(tag.Get("most"), 10, 64); err == nil {
			largest = limit
		}
		read := v.Integer
		if tag.Get("form") == "seconds" {
			read = v.Seconds
		}
		target.SetInt(read(1, largest))
	}
}
