package traffic

import (
	"encoding/json"
	"maps"

	"slipway.io/slipway/release/rollout"
)

// originalSpecOf returns the value of rollout.AnnotationOriginalSpec for a custom object; "" if another client has
// written one already.
func originalSpecOf(original Object) string {
	if _, there := annotationsOf(original)[rollout.AnnotationOriginalSpec]; there {
		return ""
	}
	labels := digStrings(original, "metadata", "labels")
	maps.DeleteFunc(labels, reserved)
	raw, err := json.Marshal(struct {
		Spec        any               `json:"spec,omitempty"`
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}{Dig(original, "spec"), labels, ownAnnotations(original)})
	if err != nil {
		return "" // it was JSON before
	}
	return string(raw)
}
