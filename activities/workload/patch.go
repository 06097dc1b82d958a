package workload

import (
	"encoding/json"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/workloadops"
)

// fieldManager is the name under which the API server notes our changes.
const fieldManager = "slipway"

// jsonPatch is a write as a JSON Patch for the object as it was read. Its tests come first, so that it is made as a whole or not at all.
func jsonPatch(o *object, w *workloadops.Write) ([]byte, error) {
	var tests, changes []jsonpatch.Op
	if w.Fresh {
		tests = append(tests, jsonpatch.Test("/metadata/resourceVersion", o.GetResourceVersion()))
	}
	if w.Held != "" {
		tests = append(tests, jsonpatch.Test(jsonpatch.Annotation(workloadops.AnnotationClaimedBy), w.Held))
	}
	if w.Replicas != nil {
		if o.sized() {
			tests = append(tests, jsonpatch.Test("/spec/replicas", w.WasReplicas))
		}
		changes = append(changes, jsonpatch.Add("/spec/replicas", *w.Replicas))
	}
	for _, s := range w.Settings {
		if len(s.Was) > 0 {
			tests = append(tests, jsonpatch.Test(s.Path, s.Was))
		}
		if len(s.Value) > 0 {
			changes = append(changes, jsonpatch.Add(s.Path, s.Value))
		} else {
			changes = append(changes, jsonpatch.Remove(s.Path))
		}
	}
	if w.Stamp != "" {
		if len(templateAnnotations(o)) == 0 {
			changes = append(changes, jsonpatch.Add("/spec/template/metadata/annotations", map[string]string{}))
		}
		changes = append(changes,
			jsonpatch.Add("/spec/template/metadata/annotations/"+jsonpatch.Escape(workloadops.AnnotationRestartedBy), w.Stamp))
	}
	changes = append(changes, metadata(o.Unstructured, w)...)
	return json.Marshal(append(tests, changes...))
}

func templateAnnotations(o *object) map[string]any {
	annotations, _, _ := unstructured.NestedMap(o.Object, "spec", "template", "metadata", "annotations")
	return annotations
}

// metadata are the changes of annotations and of the label.
func metadata(o *unstructured.Unstructured, w *workloadops.Write) []jsonpatch.Op {
	var out []jsonpatch.Op
	set := map[string]string{}
	maps.Copy(set, w.Annotations)
	remove := slices.Clone(w.Remove)
	if w.Claim != "" {
		set[workloadops.AnnotationClaimedBy] = w.Claim
		if len(o.GetLabels()) == 0 {
			out = append(out, jsonpatch.Add("/metadata/labels", map[string]string{}))
		}
		out = append(out, jsonpatch.Add(jsonpatch.Label(workloadops.LabelClaimed), workloadops.LabelClaimedValue))
	}
	if w.Release {
		remove = append(remove, workloadops.AnnotationClaimedBy)
		if _, there := o.GetLabels()[workloadops.LabelClaimed]; there {
			out = append(out, jsonpatch.Remove(jsonpatch.Label(workloadops.LabelClaimed)))
		}
	}
	if len(set) > 0 && len(o.GetAnnotations()) == 0 {
		out = append(out, jsonpatch.Add("/metadata/annotations", map[string]string{}))
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		out = append(out, jsonpatch.Add(jsonpatch.Annotation(name), set[name]))
	}
	slices.Sort(remove)
	for _, name := range slices.Compact(remove) {
		if _, there := o.GetAnnotations()[name]; there {
			out = append(out, jsonpatch.Remove(jsonpatch.Annotation(name)))
		}
	}
	return out
}
