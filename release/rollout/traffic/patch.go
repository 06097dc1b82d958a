package traffic

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Op is one operation of a JSON Patch (RFC 6902). Only test, add and remove of members of objects are used: an add puts a value in the place of an older one.
type Op struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// MarshalJSON keeps a value that is empty: an add without a value would be no patch.
func (o Op) MarshalJSON() ([]byte, error) {
	if o.Op == opRemove {
		return json.Marshal(map[string]any{"op": o.Op, "path": o.Path})
	}
	return json.Marshal(map[string]any{"op": o.Op, "path": o.Path, "value": o.Value})
}

const (
	opTest   = "test"
	opAdd    = "add"
	opRemove = "remove"
)

// escape spells a key as one step of a JSON Pointer (RFC 6901).
func escape(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }

func steps(pointer string) []string {
	parts := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, p := range parts {
		parts[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(p)
	}
	return parts
}

func annotationPath(key string) string { return "/metadata/annotations/" + escape(key) }

// at is the value at a JSON Pointer into members of objects; there says whether it exists.
func at(o Object, pointer string) (value any, there bool) {
	var here any = o
	for _, name := range steps(pointer) {
		m, ok := here.(map[string]any)
		if !ok {
			return nil, false
		}
		if here, there = m[name]; !there {
			return nil, false
		}
	}
	return here, true
}

// put sets the value at a pointer, making the objects on the way.
func put(o Object, pointer string, value any) {
	path := steps(pointer)
	for _, name := range path[:len(path)-1] {
		next, ok := o[name].(map[string]any)
		if !ok {
			next = Object{}
			o[name] = next
		}
		o = next
	}
	o[path[len(path)-1]] = value
}

// drop removes the value at a pointer, and a map of annotations or labels that is empty then, as the API server does.
func drop(o Object, pointer string) {
	path := steps(pointer)
	parent := DigObject(o, path[:len(path)-1]...)
	delete(parent, path[len(path)-1])
	if len(parent) == 0 && len(path) == 3 && path[0] == "metadata" {
		delete(DigObject(o, path[0]), path[1])
	}
}

// Apply is the object after a patch of adds and removes of members; tests are not looked at.
func Apply(o Object, patch []Op) Object {
	out := clone(o)
	for _, op := range patch {
		switch op.Op {
		case opAdd:
			put(out, op.Path, clone(op.Value))
		case opRemove:
			drop(out, op.Path)
		}
	}
	return out
}

// parsePatch reads a patch that was saved. Anything but adds and removes of ours is refused: somebody has changed it.
func parsePatch(text string) ([]Op, error) {
	var patch []Op
	if err := utiljson.Unmarshal([]byte(text), &patch); err != nil {
		return nil, err
	}
	for i, op := range patch {
		if op.Op != opAdd && op.Op != opRemove || !strings.HasPrefix(op.Path, "/") {
			return nil, fmt.Errorf("operation %d is %s %s", i+1, op.Op, op.Path)
		}
		patch[i].Value = normalise(op.Value)
	}
	return patch, nil
}

// normalise gives a decoded value the types of the API server's objects: whole numbers are int64.
func normalise(value any) any {
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

// difference are the operations that bring the places named by the pointers from one object to another. Parents that are missing are made first.
func difference(from, to Object, pointers []string) []Op {
	pointers = slices.Clone(pointers)
	slices.Sort(pointers)
	var out []Op
	made := map[string]bool{}
	for _, p := range slices.Compact(pointers) {
		was, had := at(from, p)
		want, wanted := at(to, p)
		switch {
		case had && !wanted:
			out = append(out, Op{Op: opRemove, Path: p})
		case wanted && (!had || !reflect.DeepEqual(normalise(was), normalise(want))):
			parent := p[:strings.LastIndexByte(p, '/')]
			if _, there := at(from, parent); !there && parent != "" && !made[parent] {
				made[parent] = true
				out = append(out, Op{Op: opAdd, Path: parent, Value: Object{}})
			}
			out = append(out, Op{Op: opAdd, Path: p, Value: want})
		}
	}
	return out
}
