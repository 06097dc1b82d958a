package strategy

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Undo marks a release that goes back to an earlier version.
type Undo struct {
	// ToRevision is the number of that version in the history of the rollout's name; 0 if no recorded release deployed
	// it.
	ToRevision int64 `json:"toRevision,omitempty"`
	// WithoutSteps means that all pods are replaced at once, because the version is within the policy's rollback
	// window.
	WithoutSteps bool `json:"withoutSteps,omitempty"`
}

// String returns it as text: "undo to revision 2 without steps".
func (u Undo) String() string {
	text := "undo to the version before"
	if u.ToRevision > 0 {
		text = fmt.Sprintf("undo to revision %d", u.ToRevision)
	}
	if u.WithoutSteps {
		text += " without steps"
	}
	return text
}

// WithoutSteps returns a strategy that replaces all pods in place, within the workload's own limits, without routing
// traffic or waiting for approvals. It keeps FailureThreshold.
func (s Strategy) WithoutSteps() Strategy {
	none := int64(0)
	return Strategy{Style: StylePartition, FailureThreshold: s.FailureThreshold,
		Steps: []Step{{Replicas: intstr.FromString("100%"), PauseSeconds: &none}}}
}

// ImageList formats images by container for display: "app=registry/app:2, proxy=registry/proxy:1".
func ImageList(images map[string]string) string {
	var parts []string
	for _, container := range sortedKeys(images) {
		parts = append(parts, container+"="+images[container])
	}
	return strings.Join(parts, ", ")
}
