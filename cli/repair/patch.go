package repair

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	claims "slipway.io/slipway/release/workloadops"
)

// templatePatch is the patch that makes one pod template of another, of the kind that a Change of that API version has: a strategic merge patch
// for apps/v1, a JSON merge patch otherwise.
func templatePatch(apiVersion string, from, to map[string]any) (json.RawMessage, error) {
	before, err := json.Marshal(from)
	if err != nil {
		return nil, fmt.Errorf("the stable pod template cannot be written as JSON: %w", err)
	}
	after, err := json.Marshal(to)
	if err != nil {
		return nil, fmt.Errorf("the new pod template cannot be written as JSON: %w", err)
	}
	if apiVersion == claims.APIVersion {
		patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.PodTemplateSpec{})
		return patch, err
	}
	return jsonmergepatch.CreateThreeWayJSONMergePatch(before, after, before)
}
