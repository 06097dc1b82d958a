// Package jsonpatch creates and applies JSON Patches (RFC 6902), and reads and writes the values at JSON Pointers (RFC
// 6901), in objects as decoded from the API server: map[string]any, []any, string, bool, int64, float64 and nil.
// Pointers go through members of objects only, not into lists.
package jsonpatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Op is one operation of a patch.
type Op struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

const (
	opTest    = "test"
	opAdd     = "add"
	opReplace = "replace"
	opRemove  = "remove"
)

// Test makes the whole patch fail unless the value at a pointer equals value.
func Test(path string, value any) Op { return Op{Op: opTest, Path: path, Value: value} }

// Add sets a value and replaces an existing one. The parent must exist.
func Add(path string, value any) Op { return Op{Op: opAdd, Path: path, Value: value} }

// Replace replaces a value, which must exist.
func Replace(path string, value any) Op { return Op{Op: opReplace, Path: path, Value: value} }

// Remove removes a value, which must exist.
func Remove(path string) Op { return Op{Op: opRemove, Path: path} }

// MarshalJSON keeps an empty value: an add without a value is not a valid operation.
func (o Op) MarshalJSON() ([]byte, error) {
	if o.Op == opRemove {
		return json.Marshal(map[string]any{"op": o.Op, "path": o.Path})
	}
	return json.Marshal(map[string]any{"op": o.Op, "path": o.Path, "value": o.Value})
}

// Encode returns plain data, or a value decoded from JSON, as JSON: both can always be encoded.
func Encode(value any) []byte {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return raw
}

// Undo returns the patch that restores the values of an original object at these pointers.
func Undo(original map[string]any, pointers []string) []Op {
	var undo []Op
	for _, p := range pointers {
		if value, there := At(original, p); there {
			undo = append(undo, Add(p, value))
		} else {
			undo = append(undo, Remove(p))
		}
	}
	return undo
}

// ParseUndo reads a patch of adds and removes that was saved on an object. It rejects other operations, and changes of
// a pointer that was not borrowed: then another client has edited the saved patch.
func ParseUndo(text string, borrowed func(pointer string) bool) ([]Op, error) {
	var patch []Op
	if err := utiljson.Unmarshal([]byte(text), &patch); err != nil {
		return nil, err
	}
	for i, op := range patch {
		if op.Op != opAdd && op.Op != opRemove || !strings.HasPrefix(op.Path, "/") {
			return nil, fmt.Errorf("operation %d is %s %s", i+1, op.Op, op.Path)
		}
		if !borrowed(op.Path) {
			return nil, fmt.Errorf("operation %d changes %s, which no release borrows", i+1, op.Path)
		}
		patch[i].Value = Normalise(op.Value)
	}
	return patch, nil
}

// Normalise converts a decoded value to the types of the API server's objects: integers become int64.
func Normalise(value any) any {
	raw, err := json.Marshal(value)
	if err != nil {
		return value
	}
	var out any
	if err := utiljson.Unmarshal(raw, &out); err != nil {
		return value
	}
	return out
}

var (
	escaper   = strings.NewReplacer("~", "~0", "/", "~1")
	unescaper = strings.NewReplacer("~1", "/", "~0", "~")
)

// Escape encodes a key as one token of a pointer.
func Escape(key string) string { return escaper.Replace(key) }

// Unescape decodes a token of a pointer to its key.
func Unescape(step string) string { return unescaper.Replace(step) }

// Annotation returns the pointer to an object's annotation.
func Annotation(name string) string { return "/metadata/annotations/" + Escape(name) }

// Label returns the pointer to an object's label.
func Label(name string) string { return "/metadata/labels/" + Escape(name) }

func steps(pointer string) []string {
	parts := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, p := range parts {
		parts[i] = unescaper.Replace(p)
	}
	return parts
}

// At returns the value at a pointer; there reports whether it exists.
func At(object map[string]any, pointer string) (value any, there bool) {
	value, there, err := unstructured.NestedFieldNoCopy(object, steps(pointer)...)
	return value, there && err == nil
}

// Put sets the value at a pointer, and creates the objects on the way.
func Put(object map[string]any, pointer string, value any) {
	path := steps(pointer)
	for _, name := range path[:len(path)-1] {
		next, ok := object[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			object[name] = next
		}
		object = next
	}
	object[path[len(path)-1]] = value
}

// Drop removes the value at a pointer, and its map of annotations or labels if that is then empty, as the API server
// does.
func Drop(object map[string]any, pointer string) {
	path := steps(pointer)
	last := len(path) - 1
	parent := DigObject(object, path[:last]...)
	delete(parent, path[last])
	if len(parent) == 0 && last == 2 && path[0] == "metadata" {
		delete(DigObject(object, path[:1]...), path[1])
	}
}

// ParseObject reads an object from its JSON.
func ParseObject(raw []byte) (*unstructured.Unstructured, error) {
	if len(raw) == 0 {
		return nil, errors.New("an object is missing")
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("an object can't be read: %w", err)
	}
	return object, nil
}

// Dig returns the value at a path of member names, nil if there is none.
func Dig(object map[string]any, path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(object, path...)
	return value
}

// DigObject returns the object at a path, nil if there is none.
func DigObject(object map[string]any, path ...string) map[string]any {
	found, _ := Dig(object, path...).(map[string]any)
	return found
}

// DigString returns the string at a path, "" if there is none.
func DigString(object map[string]any, path ...string) string {
	found, _ := Dig(object, path...).(string)
	return found
}

// DigObjects returns the elements of a list that are objects.
func DigObjects(object map[string]any, path ...string) (all []map[string]any) {
	list, _ := Dig(object, path...).([]any)
	for _, element := range list {
		if one, is := element.(map[string]any); is {
			all = append(all, one)
		}
	}
	return all
}

// Apply returns a copy of the object after a patch of adds and removes; other operations are ignored.
func Apply(object map[string]any, patch []Op) map[string]any {
	out := runtime.DeepCopyJSON(object)
	for _, op := range patch {
		switch op.Op {
		case opAdd:
			Put(out, op.Path, runtime.DeepCopyJSONValue(op.Value))
		case opRemove:
			Drop(out, op.Path)
		}
	}
	return out
}

// Diff returns the operations that change the values at the pointers from one object to the other, missing parents
// first.
func Diff(from, to map[string]any, pointers []string) []Op {
	pointers = slices.Clone(pointers)
	slices.Sort(pointers)
	var out []Op
	made := map[string]bool{}
	for _, p := range slices.Compact(pointers) {
		was, had := At(from, p)
		want, wanted := At(to, p)
		switch {
		case had && !wanted:
			out = append(out, Remove(p))
		case wanted && (!had || !reflect.DeepEqual(Normalise(was), Normalise(want))):
			parent := p[:strings.LastIndexByte(p, '/')]
			if _, there := At(from, parent); !there && parent != "" && !made[parent] {
				made[parent] = true
				out = append(out, Add(parent, map[string]any{}))
			}
			out = append(out, Add(p, want))
		}
	}
	return out
}
