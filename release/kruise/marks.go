package kruise

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/workloadops"
)

// MarkPatch is the JSON merge patch that marks a workload as one that a Rollout names.
func MarkPatch(rollout, kind string) map[string]any {
	return map[string]any{"metadata": map[string]any{
		"labels":      map[string]any{gate.Label: gate.LabelValue(rollout)},
		"annotations": map[string]any{gate.AnnotationWhy: gate.Why(rollout, kind)}}}
}

// ReleasePatch is the JSON Patch that gives what holds a workload's change of template back, and takes the marks off where it is let go. It is
// made only of the very version that was seen, which is object.
func ReleasePatch(w *Workload, letGo bool, object *unstructured.Unstructured) []jsonpatch.Op {
	labels, annotations := object.GetLabels(), object.GetAnnotations()
	ops := []jsonpatch.Op{jsonpatch.Test("/metadata/resourceVersion", w.ResourceVersion)}
	for _, pointer := range slices.Sorted(maps.Keys(w.Held)) {
		switch value := w.Held[pointer]; {
		case !workloadops.AbsentJSON(value):
			ops = append(ops, jsonpatch.Add(pointer, value))
		default:
			if path, there := heldAlone(object.Object, pointer); there {
				ops = append(ops, jsonpatch.Remove(path))
			}
		}
	}
	remove := []string{gate.AnnotationHeld}
	if letGo {
		remove = append(remove, gate.AnnotationWhy, gate.AnnotationBy)
		if _, is := labels[gate.Label]; is {
			ops = append(ops, jsonpatch.Remove("/metadata/labels/"+jsonpatch.Escape(gate.Label)))
		}
	}
	for _, name := range remove {
		if _, is := annotations[name]; is {
			ops = append(ops, jsonpatch.Remove(jsonpatch.Annotation(name)))
		}
	}
	return ops
}

// heldAlone is what is to be taken away of a field that was not there before: the object around it too, if nothing else is in that. there is
// false when the field is not there.
func heldAlone(object map[string]any, pointer string) (path string, there bool) {
	if _, there = jsonpatch.At(object, pointer); !there {
		return "", false
	}
	parent := pointer[:strings.LastIndexByte(pointer, '/')]
	around, _ := jsonpatch.At(object, parent)
	if fields, is := around.(map[string]any); is && len(fields) == 1 && strings.Count(parent, "/") > 2 {
		return parent, true
	}
	return pointer, true
}
