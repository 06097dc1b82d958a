package workload

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// patchOf is a write as a JSON Patch for the object that was read; template is the pod template to set, nil leaves it.
// Its tests come first, so that the patch is applied completely or not at all.
func patchOf(o *unstructured.Unstructured, w *workload.Write, template map[string]any) []jsonpatch.Op {
	var tests, changes []jsonpatch.Op
	if w.OnlyIfUnchanged {
		tests = append(tests, jsonpatch.Test("/metadata/resourceVersion", o.GetResourceVersion()))
	}
	if w.ExpectedClaim != "" {
		tests = append(tests, jsonpatch.Test(jsonpatch.Annotation(workload.AnnotationClaimedBy), w.ExpectedClaim))
	}
	if w.Replicas != nil {
		if _, sized := jsonpatch.At(o.Object, "/spec/replicas"); sized { // always true on a real API server
			tests = append(tests, jsonpatch.Test("/spec/replicas", w.ExpectedReplicas))
		}
		changes = append(changes, jsonpatch.Add("/spec/replicas", *w.Replicas))
	}
	for _, s := range w.Settings {
		if len(s.Expected) > 0 {
			tests = append(tests, jsonpatch.Test(s.Path, s.Expected))
		}
		if !workload.AbsentJSON(s.Value) {
			changes = append(changes, jsonpatch.Add(s.Path, s.Value))
		} else if _, there := jsonpatch.At(o.Object, s.Path); there {
			changes = append(changes, jsonpatch.Remove(s.Path))
		}
	}
	if w.Stamp != "" {
		now, _, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "annotations")
		changes = append(changes, entries("/spec/template/metadata/annotations", now,
			map[string]string{workload.AnnotationRestartedBy: w.Stamp}, nil)...)
	}
	if template != nil {
		changes = append(changes, jsonpatch.Replace("/spec/template", template))
	}
	if w.KeepTemplate != "" {
		keepTemplate(w, templateOf(o))
	}
	return slices.Concat(tests, changes, metadata(o, w))
}

// keepTemplate makes a write keep a template in its annotation KeepTemplate.
func keepTemplate(w *workload.Write, template map[string]any) {
	annotations := map[string]string{w.KeepTemplate: string(jsonpatch.Encode(template))}
	maps.Copy(annotations, w.Annotations)
	w.Annotations, w.KeepTemplate = annotations, ""
}

// metadata are the changes of labels and annotations.
func metadata(o *unstructured.Unstructured, w *workload.Write) []jsonpatch.Op {
	labels, annotations := map[string]string{}, map[string]string{}
	maps.Copy(annotations, w.Annotations)
	maps.Copy(labels, w.Labels)
	unlabel := slices.Clone(w.Unlabel)
	remove := slices.Clone(w.Remove)
	if w.Claim != "" {
		annotations[workload.AnnotationClaimedBy], labels[workload.LabelClaimed] = w.Claim,
			workload.LabelClaimedValue
	}
	if w.Release {
		remove, unlabel = append(remove, workload.AnnotationClaimedBy), append(unlabel, workload.LabelClaimed)
	}
	if saved, err := rollout.ParseSaved(w.Annotations[workload.AnnotationRollout]); err == nil {
		labels[workload.LabelRollout] = saved.Mark()
	}
	if slices.Contains(w.Remove, workload.AnnotationRollout) {
		unlabel = append(unlabel, workload.LabelRollout)
	}
	return append(entries("/metadata/labels", o.GetLabels(), labels, unlabel),
		entries("/metadata/annotations", o.GetAnnotations(), annotations, remove)...)
}

// claimedLabel marks an object that a release holds.
var claimedLabel = map[string]string{workload.LabelClaimed: workload.LabelClaimedValue}

// entries are the changes of a map of labels or annotations, which is created if it does not exist.
func entries(path string, now, set map[string]string, remove []string) []jsonpatch.Op {
	var out []jsonpatch.Op
	if len(set) > 0 && len(now) == 0 {
		out = append(out, jsonpatch.Add(path, map[string]string{}))
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		out = append(out, jsonpatch.Add(path+"/"+jsonpatch.Escape(name), set[name]))
	}
	slices.Sort(remove)
	for _, name := range slices.Compact(remove) {
		if _, there := now[name]; there {
			out = append(out, jsonpatch.Remove(path+"/"+jsonpatch.Escape(name)))
		}
	}
	return out
}
