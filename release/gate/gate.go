// Package gate defines the marks that hold a workload named by a Rollout: a change of its pod template moves no pod
// until a release of that Rollout does. Admission policies, or a webhook on older clusters, write the marks in the
// request that changes the template. The release restores the previous values from them when it starts.
package gate

import (
	"encoding/json"
	"fmt"

	"slipway.io/slipway/release/digest"
)

const (
	// Label marks a workload that a Rollout names: its value is LabelValue of the Rollout's name. Only workloads with
	// it have their changes of template held.
	Label = "slipway.io/gate"
	// AnnotationWhy says the same as a sentence, for people.
	AnnotationWhy = "slipway.io/gate"
	// AnnotationHeld is written with a held change of template: the previous values of the fields that hold it, by JSON
	// Pointer, as JSON; null if the field was absent. It stays until a release starts or the template is the stable one
	// again.
	AnnotationHeld = "slipway.io/gated"
	// AnnotationBy is the user that changed the template last, as authenticated by the API server.
	AnnotationBy = "slipway.io/gated-by"
	// AnnotationEditor is set on a Rollout: the user that edited its spec last, as authenticated by the API server.
	AnnotationEditor = "slipway.io/edited-by"
)

// LabelValue returns the value of Label for a Rollout's name: the name, or its shortened SHA-256 if the name exceeds
// the length limit of label values.
func LabelValue(rollout string) string { return digest.Label(rollout) }

// Why returns AnnotationWhy's sentence for a workload of a kind.
func Why(rollout, kind string) string {
	return fmt.Sprintf("Rollout %s holds this %s: a change of its pod template moves no pod until the Rollout "+
		"releases it", rollout, kind)
}

// Held are the previous values of the fields that hold a change of template, by JSON Pointer; null: the field was
// absent.
type Held map[string]json.RawMessage

// ParseHeld reads AnnotationHeld; nil if there is none.
func ParseHeld(annotations map[string]string) (Held, error) {
	text, there := annotations[AnnotationHeld]
	if !there {
		return nil, nil
	}
	var held Held
	if err := json.Unmarshal([]byte(text), &held); err != nil || held == nil {
		return nil, fmt.Errorf("the annotation %s cannot be read: %q is not a JSON object of fields", AnnotationHeld,
			text)
	}
	return held, nil
}
