package workload

import (
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/workloadops"
)

// fieldManager is the name under which the API server notes our changes.
const fieldManager = "slipway"

// change is one operation of a JSON Patch (RFC 6902).
type change struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// jsonPatch is a write as a JSON Patch for the object as it was read. Its tests come first, so that it is made as a whole or not at all.
func jsonPatch(o *object, w *workloadops.Write) ([]byte, error) {
	var tests, changes []change
	if w.Fresh {
		tests = append(tests, change{"test", "/metadata/resourceVersion", o.GetResourceVersion()})
	}
	if w.Held != "" {
		tests = append(tests, change{"test", annotation(workloadops.AnnotationClaimedBy), w.Held})
	}
	if w.Replicas != nil {
		if o.sized() {
			tests = append(tests, change{"test", "/spec/replicas", w.WasReplicas})
		}
		changes = append(changes, change{"add", "/spec/replicas", *w.Replicas})
	}
	for _, s := range w.Settings {
		if len(s.Was) > 0 {
			tests = append(tests, change{"test", s.Path, s.Was})
		}
		if len(s.Value) > 0 {
			changes = append(changes, change{"add", s.Path, s.Value})
		} else {
			changes = append(changes, change{Op: "remove", Path: s.Path})
		}
	}
	if w.Stamp != "" {
		if len(templateAnnotations(o)) == 0 {
			changes = append(changes, change{"add", "/spec/template/metadata/annotations", map[string]string{}})
		}
		changes = append(changes, change{"add", "/spec/template/metadata/annotations/" + escape(workloadops.AnnotationRestartedBy), w.Stamp})
	}
	changes = append(changes, metadata(o.Unstructured, w)...)
	return json.Marshal(append(tests, changes...))
}

func templateAnnotations(o *object) map[string]any {
	annotations, _, _ := unstructured.NestedMap(o.Object, "spec", "template", "metadata", "annotations")
	return annotations
}

// metadata are the changes of annotations and of the label.
func metadata(o *unstructured.Unstructured, w *workloadops.Write) []change {
	var out []change
	set := map[string]string{}
	for name, value := range w.Annotations {
		set[name] = value
	}
	remove := slices.Clone(w.Remove)
	if w.Claim != "" {
		set[workloadops.AnnotationClaimedBy] = w.Claim
		if len(o.GetLabels()) == 0 {
			out = append(out, change{"add", "/metadata/labels", map[string]string{}})
		}
		out = append(out, change{"add", "/metadata/labels/" + escape(workloadops.LabelClaimed), workloadops.LabelClaimedValue})
	}
	if w.Release {
		remove = append(remove, workloadops.AnnotationClaimedBy)
		if _, there := o.GetLabels()[workloadops.LabelClaimed]; there {
			out = append(out, change{Op: "remove", Path: "/metadata/labels/" + escape(workloadops.LabelClaimed)})
		}
	}
	if len(set) > 0 && len(o.GetAnnotations()) == 0 {
		out = append(out, change{"add", "/metadata/annotations", map[string]string{}})
	}
	for _, name := range sortedKeys(set) {
		out = append(out, change{"add", annotation(name), set[name]})
	}
	slices.Sort(remove)
	for _, name := range slices.Compact(remove) {
		if _, there := o.GetAnnotations()[name]; there {
			out = append(out, change{Op: "remove", Path: annotation(name)})
		}
	}
	return out
}

func annotation(name string) string { return "/metadata/annotations/" + escape(name) }

// escape spells a key as one step of a JSON Pointer (RFC 6901).
func escape(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
