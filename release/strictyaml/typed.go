package strictyaml

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

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
	case t.Kind() == reflect.Int32:
		v.Integer(math.MinInt32, math.MaxInt32)
	case t.Kind() == reflect.Int64:
		v.Integer(math.MinInt64, math.MaxInt64)
	}
}

func (v Value) checkStruct(t reflect.Type, own string) {
	var names []string
	fields := map[string]reflect.StructField{}
	for _, field := range reflect.VisibleFields(t) { // includes those of embedded structs
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			names, fields[name] = append(names, name), field
		}
	}
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
