package kruise

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/workload"
)

// MarkPatch returns the JSON merge patch that marks a workload as named by a Rollout.
func MarkPatch(rollout, kind string) map[string]any {
	return map[string]any{"metadata": map[string]any{
		"labels":      map[string]any{gate.Label: gate.LabelValue(rollout)},
		"annotations": map[string]any{gate.AnnotationWhy: gate.Why(rollout, kind)}}}
}

// UnholdPatch returns the JSON Patch that restores the fields that hold a workload's change of template. With
// removeMarks it also removes the marks. It applies only to the resourceVersion of w; object is that version.
func UnholdPatch(w *Workload, removeMarks bool, object *unstructured.Unstructured) []jsonpatch.Op {
	labels, annotations := object.GetLabels(), object.GetAnnotations()
	ops := []jsonpatch.Op{jsonpatch.Test("/metadata/resourceVersion", w.ResourceVersion)}
	for _, pointer := range slices.Sorted(maps.Keys(w.Held)) {
		switch value := w.Held[pointer]; {
		case !workload.AbsentJSON(value):
			ops = append(ops, jsonpatch.Add(pointer, value))
		default:
			if path, there := removalPath(object.Object, pointer); there {
				ops = append(ops, jsonpatch.Remove(path))
			}
		}
	}
	remove := []string{gate.AnnotationHeld}
	if removeMarks {
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

// removalPath returns what to remove for a held field that was absent before: the parent object if the field is its
// only member, else the field. there is false if the field does not exist.
func removalPath(object map[string]any, pointer string) (path string, there bool) {
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
