package strategy

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Undo says of a release that it goes back to a version that has served before.
type Undo struct {
	// ToRevision is the number of that version in the history of the rollout's name; 0: it has none, since no release on record brought it.
	ToRevision int64 `json:"toRevision,omitempty"`
	// WithoutSteps says that all pods are replaced at once, as the policy's window of rollback allows.
	WithoutSteps bool `json:"withoutSteps,omitempty"`
}

// String says it in words: "undo to revision 2 without steps".
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

// WithoutSteps is the strategy that replaces all pods in place, within the workload's own limits: nothing is routed, nothing waits for
// anybody. failureThreshold stays.
func (s Strategy) WithoutSteps() Strategy {
	none := int64(0)
	return Strategy{Style: StylePartition, FailureThreshold: s.FailureThreshold,
		Steps: []Step{{Replicas: intstr.FromString("100%"), PauseSeconds: &none}}}
}

// ImageList is images by container as people read them: "app=registry/app:2, proxy=registry/proxy:1".
func ImageList(images map[string]string) string {
	var parts []string
	for _, container := range sortedKeys(images) {
		parts = append(parts, container+"="+images[container])
	}
	return strings.Join(parts, ", ")
}
