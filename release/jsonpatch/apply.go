package jsonpatch

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// Apply is the object after a patch of adds and removes of members; tests are not looked at.
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

// Diff are the operations that bring the places named by the pointers from one object to another. Parents that are missing are made first.
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
