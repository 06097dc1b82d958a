package rollout

import (
	"encoding/json"
	"slipway.io/slipway/release/rollout/strategy"
)

// Names that a rollout writes on objects. AnnotationClaimedBy and LabelClaimed of release/workloadops hold for rollouts as for every
// operation.
const (
	// AnnotationSaved stands on the workload from a rollout's first write to its last: Saved, as JSON. While it is there without a claim, a
	// frozen split is waiting for the next release, or for a rollback.
	AnnotationSaved = "slipway.io/rollout"
	// AnnotationRecover stands beside it: how a person brings the workload home with plain kubectl commands.
	AnnotationRecover = "slipway.io/recover"
	// AnnotationRest is written when the pods come to rest: Rest, as JSON. What the workload is like otherwise was somebody else's doing.
	AnnotationRest = "slipway.io/rest"
	// AnnotationRestore stands on every other object that a rollout borrowed (Service, HTTPRoute, custom object, HPA): the JSON Patch (RFC
	// 6902) that makes the object what it was, this annotation and the next ones gone.
	AnnotationRestore = "slipway.io/restore"
	// AnnotationHeldBy names, on borrowed objects and on objects that a rollout created, the rollout's claim: one release at a time routes by
	// an object.
	AnnotationHeldBy = "slipway.io/held-by"
	// AnnotationWritten is, on borrowed objects, the SHA-256 of the borrowed part as it was last written, so that another's edit is noticed.
	AnnotationWritten = "slipway.io/written"
)

// Saved is what a person or another process needs in order to bring the workload and its traffic home without Temporal.
type Saved struct {
	// Name is the rollout's name, WorkflowID its workflow.
	Name       string         `json:"name"`
	WorkflowID string         `json:"workflowId"`
	Style      strategy.Style `json:"style"`
	// Stable is the revision that served before: the pod-template-hash of its pods for a Deployment, the name of the ControllerRevision
	// otherwise.
	Stable string `json:"stable"`
	// StableNumber is a Deployment's revision number, for kubectl rollout undo --to-revision; StatefulSet and DaemonSet: the
	// ControllerRevision's.
	StableNumber int64 `json:"stableNumber,omitempty"`
	// StableTemplate is the digest of the stable pod template as the API server keeps it.
	StableTemplate string `json:"stableTemplate,omitempty"`
	// Claim is the claim under which this was saved: another claim on the workload has adopted it.
	Claim string `json:"claim,omitempty"`
	// Canary is the new revision in the same form, "" until it is known.
	Canary string `json:"canary,omitempty"`
	// Replicas is the workload's size when the rollout began.
	Replicas int32 `json:"replicas"`
	// Settings are the borrowed fields of the workload by JSON Pointer; null: the field was absent.
	Settings map[string]json.RawMessage `json:"settings,omitempty"`
	// Routings are the strategy's; DisableGenerateCanaryService as well.
	Routings                     []strategy.Routing `json:"routings,omitempty"`
	DisableGenerateCanaryService bool               `json:"disableGenerateCanaryService,omitempty"`
	// CanaryWorkload is the name of the extra Deployment, "" without one. CanaryMetadata is what was added to its pods.
	CanaryWorkload string                `json:"canaryWorkload,omitempty"`
	CanaryMetadata *strategy.PodMetadata `json:"canaryMetadata,omitempty"`
	// Autoscalers are the HorizontalPodAutoscalers that were pinned; their originals are on them (AnnotationRestore).
	Autoscalers []string `json:"autoscalers,omitempty"`
	// TrafficRouting is the shared TrafficRouting that the rollout holds, "" without one.
	TrafficRouting string `json:"trafficRouting,omitempty"`
	// Retracting says that the pods were told to go back to the stable version (a rollback in batches is under way, or a rollback).
	Retracting bool `json:"retracting,omitempty"`
}

// Rest is what a workload is like while a step rests.
type Rest struct {
	// Template is the digest of the pod template, Replicas the size asked for (0 for a kind without a size).
	Template string `json:"template"`
	Replicas int32  `json:"replicas"`
}

// ParseSaved reads the annotation AnnotationSaved.
func ParseSaved(text string) (*Saved, error) {
	var s Saved
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, err
	}
	return &s, nil
}

// String is the annotation's value.
func (s Saved) String() string { return text(s) }

// String is the annotation's value.
func (r Rest) String() string { return text(r) }

func text(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain data that was JSON before: it always marshals
	}
	return string(raw)
}
