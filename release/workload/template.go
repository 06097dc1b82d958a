package workload

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/phrase"
)

// owned are labels and annotations that controllers and nodes set on pods, by part of the metadata, each with the one
// that sets it. A template has them when it was copied from a pod, a ReplicaSet or a revision. A name that ends with
// "/" means all of that prefix.
//
// Not in this table is what makes new pods on purpose, such as kubectl.kubernetes.io/restartedAt and
// slipway.io/restarted-by, and what service meshes write (sidecar.istio.io/status, linkerd.io/proxy-version): a mesh
// writes it on pods, and in a template it comes from `istioctl kube-inject` or `linkerd inject --manual`, together with
// the sidecar that it describes. Both are changes like any other.
var owned = map[string]map[string]string{
	"labels": {
		labelHash:                             "the controller of a Deployment or CloneSet",
		labelRevision:                         "the controller of a StatefulSet, DaemonSet or CloneSet",
		"pod-template-generation":             "the controller of a DaemonSet",
		"statefulset.kubernetes.io/pod-name":  "the controller of a StatefulSet",
		"apps.kubernetes.io/pod-index":        "the controller of a StatefulSet",
		"batch.kubernetes.io/":                "the controller of a Job",
		"apps.kruise.io/cloneset-instance-id": "the controller of a CloneSet",
		"lifecycle.apps.kruise.io/state":      "Kruise's controllers",
		"rollouts.kruise.io/rollout-id":       "releases",
		"rollouts.kruise.io/rollout-batch-id": "releases",
		"slipway.io/canary-of":                "releases",
	},
	"annotations": {
		"batch.kubernetes.io/":                "the controller of a Job",
		"apps.kruise.io/inplace-update-state": "Kruise's controllers",
		"apps.kruise.io/inplace-update-grace": "Kruise's controllers",
		"lifecycle.apps.kruise.io/timestamp":  "Kruise's controllers",
		"cni.projectcalico.org/":              "the network of a node",
		"k8s.v1.cni.cncf.io/network-status":   "the network of a node",
		"k8s.v1.cni.cncf.io/networks-status":  "the network of a node",
		"kubernetes.io/limit-ranger":          "the API server",
	},
}

// ownerOf returns what sets a label or annotation on pods; "" if only people do.
func ownerOf(part, name string) string {
	if owner, is := owned[part][name]; is {
		return owner
	}
	prefix, _, _ := strings.Cut(name, "/")
	return owned[part][prefix+"/"]
}

// Template returns a copy of the pod template of a workload, or of a revision of the same form, without the label that
// the workload's controller adds to its revisions' templates and ignores when it compares templates: a template with
// it is the same version. Other labels and annotations of the table above are part of the version, since a changed one
// makes new pods.
func (c Controller) Template(object map[string]any) map[string]any {
	template, _, _ := unstructured.NestedMap(object, "spec", "template")
	if c.TemplateLabel != "" {
		unstructured.RemoveNestedField(template, "metadata", "labels", c.TemplateLabel)
	}
	return template
}

// TemplateOf is Controller.Template of an object of any kind.
func TemplateOf(o *unstructured.Unstructured) map[string]any {
	return Of(o.GetAPIVersion(), o.GetKind()).Template(o.Object)
}

// ForWorkload returns a template as it is written to a workload: with the label that TemplateOf leaves out, if the
// workload has it. It is its owner's, who would see a difference from the manifest.
func ForWorkload(o *unstructured.Unstructured, template map[string]any) map[string]any {
	label := Of(o.GetAPIVersion(), o.GetKind()).TemplateLabel
	value, has, _ := unstructured.NestedString(o.Object, "spec", "template", "metadata", "labels", label)
	if label == "" || !has {
		return template
	}
	template = runtime.DeepCopyJSON(template)
	jsonpatch.Put(template, jsonpatch.Label(label), value)
	return template
}

// WithoutOwned returns a copy of a pod template without the labels and annotations that controllers set on pods, for a
// workload that a release makes itself. Labels that the workload's selector names stay: its pods need them.
func WithoutOwned(template map[string]any, selector map[string]any) map[string]any {
	out := maps.Clone(template)
	metadata, _, _ := unstructured.NestedMap(template, "metadata")
	for part := range owned {
		entries, _ := metadata[part].(map[string]any)
		maps.DeleteFunc(entries, func(name string, _ any) bool {
			return ownerOf(part, name) != "" && (part != "labels" || !selects(selector, name))
		})
		if len(entries) == 0 {
			delete(metadata, part)
		}
	}
	if out["metadata"] = metadata; len(metadata) == 0 {
		delete(out, "metadata")
	}
	return out
}

// selects reports whether a label selector names a label.
func selects(selector map[string]any, label string) bool {
	exact, _, _ := unstructured.NestedMap(selector, "matchLabels")
	if _, is := exact[label]; is {
		return true
	}
	expressions, _, _ := unstructured.NestedSlice(selector, "matchExpressions")
	return slices.ContainsFunc(expressions, func(e any) bool {
		expression, _ := e.(map[string]any)
		return expression["key"] == label
	})
}

// maxOwnedNamed is how many labels and annotations a notice names.
const maxOwnedNamed = 5

// OwnedNotice warns of labels and annotations in the pod template of a workload that controllers set on pods; "" if it
// has none.
func OwnedNotice(w fmt.Stringer, o *unstructured.Unstructured) string {
	var found []string
	for _, part := range []string{"labels", "annotations"} {
		entries, _, _ := unstructured.NestedMap(o.Object, "spec", "template", "metadata", part)
		for _, name := range slices.Sorted(maps.Keys(entries)) {
			if owner := ownerOf(part, name); owner != "" {
				found = append(found, fmt.Sprintf("%s (set by %s)", name, owner))
			}
		}
	}
	if len(found) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: its pod template has %s, which controllers set on pods themselves: it was probably copied "+
		"from a pod or a ReplicaSet. The release goes on without it; remove it from the template", w,
		phrase.List(found, maxOwnedNamed))
}
