// Package jsonpatch makes and applies JSON Patches (RFC 6902), and reads and writes what JSON Pointers (RFC 6901) lead to, in objects as the API server has
// them: map[string]any, []any, string, bool, int64, float64 and nil. Pointers lead through members of objects only, not into lists.
package jsonpatch

import (
	"encoding/json"
	"fmt"
	"strings"

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

// Test refuses the whole patch unless the value at a pointer is this one.
func Test(path string, value any) Op { return Op{Op: opTest, Path: path, Value: value} }

// Add puts a value in the place of an older one, if there is one. What the last step of the path is in must be there.
func Add(path string, value any) Op { return Op{Op: opAdd, Path: path, Value: value} }

// Replace puts a value in the place of an older one, which must be there.
func Replace(path string, value any) Op { return Op{Op: opReplace, Path: path, Value: value} }

// Remove removes a value, which must be there.
func Remove(path string) Op { return Op{Op: opRemove, Path: path} }

// Adds says whether the operation is an Add.
func (o Op) Adds() bool { return o.Op == opAdd }

// MarshalJSON keeps a value that is empty: an add without a value would be no patch.
func (o Op) MarshalJSON() ([]byte, error) {
	if o.Op == opRemove {
		return json.Marshal(map[string]any{"op": o.Op, "path": o.Path})
	}
	return json.Marshal(map[string]any{"op": o.Op, "path": o.Path, "value": o.Value})
}

// ParseUndo reads a patch of adds and removes that was saved on an object. Anything else is refused: somebody has changed it.
func ParseUndo(text string) ([]Op, error) {
	var patch []Op
	if err := utiljson.Unmarshal([]byte(text), &patch); err != nil {
		return nil, err
	}
	for i, op := range patch {
		if op.Op != opAdd && op.Op != opRemove || !strings.HasPrefix(op.Path, "/") {
			return nil, fmt.Errorf("operation %d is %s %s", i+1, op.Op, op.Path)
		}
		patch[i].Value = Normalise(op.Value)
	}
	return patch, nil
}

// Normalise gives a decoded value the types of the API server's objects: whole numbers are int64.
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
