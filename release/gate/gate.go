// Package gate is what holds a workload that a Rollout names: a change of its pod template moves no pod until a release of that Rollout
// does. Admission policies, or a webhook on older clusters, write these marks in the request that changes the template; whoever begins the
// release takes over from them what stood before.
package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

const (
	// Label stands on a workload that a Rollout names: LabelValue of the Rollout's name. Its changes of template are held by it alone.
	Label = "slipway.io/gate"
	// AnnotationWhy says the same in a sentence, for people.
	AnnotationWhy = "slipway.io/gate"
	// AnnotationHeld is written with the change of template that is held: the fields that hold it as they stood before, by JSON Pointer, as
	// JSON; null: the field was absent. It stays until a release begins, or the template is what it was.
	AnnotationHeld = "slipway.io/gated"
	// AnnotationBy is who changed the template last: the user as the API server has authenticated them.
	AnnotationBy = "slipway.io/gated-by"
	// AnnotationEditor is, on a Rollout, who has edited its spec last, as the API server has authenticated them.
	AnnotationEditor = "slipway.io/edited-by"
)

// HeldPartition is the partition of a StatefulSet that is held. One of its size would give the new template to ordinals that scaling adds.
const HeldPartition = 2147483647

// labelLimit is the longest value of a label (Kubernetes API).
const labelLimit = 63

// LabelValue is the value of Label for a Rollout's name: its SHA-256, shortened, when it is longer than a label's value may be.
func LabelValue(rollout string) string {
	if len(rollout) <= labelLimit {
		return rollout
	}
	sum := sha256.Sum256([]byte(rollout))
	return hex.EncodeToString(sum[:])[:labelLimit-7]
}

// Why is AnnotationWhy's sentence for a workload of a kind.
func Why(rollout, kind string) string {
	return fmt.Sprintf("Rollout %s holds this %s: a change of its pod template moves no pod until the Rollout releases it", rollout, kind)
}

// Held are the fields that hold a change of template, as they stood before, by JSON Pointer; null: the field was absent.
type Held map[string]json.RawMessage

// ParseHeld reads AnnotationHeld; nil when it is not there.
func ParseHeld(annotations map[string]string) (Held, error) {
	text, there := annotations[AnnotationHeld]
	if !there {
		return nil, nil
	}
	var held Held
	if err := json.Unmarshal([]byte(text), &held); err != nil || held == nil {
		return nil, fmt.Errorf("the annotation %s cannot be read: %q is no JSON object of fields", AnnotationHeld, text)
	}
	return held, nil
}
