package pods

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	mergepatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"slipway.io/slipway/release/digest"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// Digest returns the SHA-256 of a pod template's canonical JSON: keys sorted, without nulls.
func Digest(template map[string]any) string {
	return digest.Of(string(jsonpatch.Encode(clean(template))))
}

// containers returns the containers of a pod template, init containers first.
func containers(template map[string]any) (all []map[string]any) {
	for _, list := range []string{"initContainers", "containers"} {
		entries, _, _ := unstructured.NestedFieldNoCopy(template, "spec", list)
		containers, _ := entries.([]any)
		for _, c := range containers {
			container, _ := c.(map[string]any)
			all = append(all, container)
		}
	}
	return all
}

// Images returns the images of a pod template by container name, including init containers.
func Images(template map[string]any) map[string]string {
	images := map[string]string{}
	for _, container := range containers(template) {
		name, _ := container["name"].(string)
		images[name], _ = container["image"].(string)
	}
	return images
}

// Stripped returns a revision's pod template without what its controller added: the label pod-template-hash and the key
// "$patch".
func Stripped(template map[string]any) map[string]any {
	out, _ := clean(template).(map[string]any)
	delete(out, "$patch")
	jsonpatch.Drop(out, jsonpatch.Label(appsv1.DefaultDeploymentUniqueLabelKey))
	return out
}

// restartStamps are the annotations that change a pod template only to get new pods: Slipway's own and kubectl's.
var restartStamps = []string{workload.AnnotationRestartedBy, "kubectl.kubernetes.io/restartedAt"}

// SameButForRestarts reports whether two pod templates are equal except for restart stamps.
func SameButForRestarts(a, b map[string]any) bool {
	return Digest(unstamped(a)) == Digest(unstamped(b))
}

func unstamped(template map[string]any) map[string]any {
	out, _ := clean(template).(map[string]any)
	for _, stamp := range restartStamps {
		jsonpatch.Drop(out, jsonpatch.Annotation(stamp))
	}
	return out
}

// clean returns a deep copy without nulls.
func clean(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			if e != nil {
				out[k] = clean(e)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = clean(e)
		}
		return out
	}
	return v
}

// Apply returns the new version of a pod template and leaves its argument unchanged. Its error is a sentence for users.
// A templatePatch is a strategic merge patch for kinds of apps/v1 and a JSON merge patch (RFC 7386) for others.
func Apply(change strategy.Change, apiVersion string, template map[string]any) (map[string]any, error) {
	copied, _ := clean(template).(map[string]any)
	if len(change.TemplatePatch) == 0 {
		return copied, setImages(change.Images, copied)
	}
	original := jsonpatch.Encode(copied)
	var patched []byte
	var err error
	if apiVersion == appsv1.SchemeGroupVersion.String() {
		patched, err = strategicpatch.StrategicMergePatch(original, change.TemplatePatch, corev1.PodTemplateSpec{})
	} else {
		patched, err = mergepatch.MergePatch(original, change.TemplatePatch)
	}
	if err != nil {
		return nil, fmt.Errorf("the patch cannot be merged into the pod template: %w", err)
	}
	var typed corev1.PodTemplateSpec
	strict := json.NewDecoder(bytes.NewReader(patched))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&typed); err != nil {
		return nil, fmt.Errorf("the patched pod template is not valid: %w", err)
	}
	var out map[string]any
	return out, json.Unmarshal(patched, &out)
}

func setImages(images map[string]string, template map[string]any) error {
	found := map[string]bool{}
	var names []string
	for _, container := range containers(template) {
		name, _ := container["name"].(string)
		names = append(names, name)
		if image, ok := images[name]; ok {
			container["image"], found[name] = image, true
		}
	}
	missing := slices.DeleteFunc(slices.Sorted(maps.Keys(images)), func(name string) bool { return found[name] })
	if len(missing) > 0 {
		return fmt.Errorf("the workload has no container %s; it has %s", strings.Join(missing, ", "),
			strings.Join(names, ", "))
	}
	return nil
}

// WithMetadata returns the pod template of the extra workload: with its own label and what patchPodTemplateMetadata
// adds.
func WithMetadata(template map[string]any, workload string, add *strategy.PodMetadata) map[string]any {
	out, _ := clean(template).(map[string]any)
	jsonpatch.Put(out, jsonpatch.Label(strategy.LabelCanaryOf), strategy.CanaryOf(workload))
	if add == nil {
		return out
	}
	for k, v := range add.Labels {
		jsonpatch.Put(out, jsonpatch.Label(k), v)
	}
	for k, v := range add.Annotations {
		jsonpatch.Put(out, jsonpatch.Annotation(k), v)
	}
	return out
}
