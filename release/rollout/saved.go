package rollout

import (
	"encoding/json"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/digest"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// The annotations that a rollout writes on objects, in addition to AnnotationClaimedBy, LabelClaimed and
// AnnotationRollout of release/workload.
const (
	// AnnotationRecover is on the workload as long as AnnotationRollout: how an operator restores the workload with plain
	// kubectl commands.
	AnnotationRecover = "slipway.io/recover"
	// AnnotationSettled is written when the pods have settled: SettledState, as JSON. Any difference of the workload
	// from it was made by another client.
	AnnotationSettled = "slipway.io/rest"
	// AnnotationRestore is on every other object that a rollout borrowed (Service, HTTPRoute, custom object, HPA): the
	// JSON Patch (RFC 6902) that restores the object and removes this annotation and the next ones.
	AnnotationRestore = "slipway.io/restore"
	// AnnotationHeldBy is the rollout's claim on objects that it borrowed or created: an object can route for only one
	// release at a time.
	AnnotationHeldBy = "slipway.io/held-by"
	// AnnotationWritten is the SHA-256 of the borrowed part of an object as it was last written: it detects edits by
	// other clients.
	AnnotationWritten = "slipway.io/written"
	// AnnotationNext is on a workload whose own pod template is the command: the template that it declares, as JSON,
	// while the stable one has to be in the spec: until every pod is of the stable one, or while the workload has no
	// pods.
	AnnotationNext = "slipway.io/next-template"
	// AnnotationRepair is put on a borrowed object by an operator, or by slipway repair for one: the operator's name.
	// The API server's guard then admits every edit, and the engine writes nothing more to the object.
	AnnotationRepair = "slipway.io/repair"
)

// Saved is what an operator or another process needs to restore the workload and its traffic without Temporal.
type Saved struct {
	// UID is the workload's: another one with this annotation is a copy of it (AnnotationsOf). "" if an earlier version
	// of Slipway wrote it.
	UID string `json:"uid,omitempty"`
	// Name is the rollout's name, WorkflowID its workflow.
	Name       string         `json:"name"`
	WorkflowID string         `json:"workflowId"`
	Style      strategy.Style `json:"style"`
	// Stable is the revision that served before: a Deployment's pod-template-hash, otherwise the ControllerRevision's
	// name.
	Stable string `json:"stable"`
	// StableNumber is the number of that revision; for a Deployment that of kubectl rollout undo --to-revision.
	StableNumber int64 `json:"stableNumber,omitempty"`
	// StableTemplate is the digest of the stable pod template as the API server keeps it.
	StableTemplate string `json:"stableTemplate,omitempty"`
	// Declared is the digest of the pod template that the workload declares, "" when the rollout sets the new template
	// itself.
	Declared string `json:"declared,omitempty"`
	// Over is the revision of the workload's own update that hung when the rollout began, "" if none did. A change that
	// the rollout itself makes is a change of that revision's template: it is what the workload's owner wants to run.
	Over string `json:"over,omitempty"`
	// Claim is the claim under which this was saved. If the workload has another claim, that release has adopted it.
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
	// CanaryWorkload is the name of the extra Deployment; "": none. CanaryMetadata is what was added to its pods.
	CanaryWorkload string                `json:"canaryWorkload,omitempty"`
	CanaryMetadata *strategy.PodMetadata `json:"canaryMetadata,omitempty"`
	// Autoscalers are the pinned HorizontalPodAutoscalers. Their originals are in their AnnotationRestore.
	Autoscalers []string `json:"autoscalers,omitempty"`
	// TrafficRouting is the shared TrafficRouting that the rollout holds; "": none.
	TrafficRouting string `json:"trafficRouting,omitempty"`
	// RollingBack is true once the pods were asked to go back to the stable version, at once or in batches.
	RollingBack bool `json:"retracting,omitempty"`
	// FinalTemplateBy is the claim and the side ("<claim> new") for which the final template was set at the end. A
	// later change of the template is by another client.
	FinalTemplateBy string `json:"homeward,omitempty"`
}

// LeftToController reports whether the workload's own controller rolls out another client's template before this
// rollout has moved a pod: the template is not the stable one, and none of the borrowed settings is in place. Only for
// a Deployment: there a rollout never sets a template without the minReadySeconds gate before its pods have settled.
func (s Saved) LeftToController(means workload.Means, template string, live map[string]json.RawMessage) bool {
	moved := s.Canary != "" || s.FinalTemplateBy != "" || s.RollingBack
	if means != workload.Limits || moved || s.StableTemplate == "" || s.Style == strategy.StyleCanary {
		return false
	}
	return template != s.StableTemplate && len(SettledState{Settings: s.Settings}.ChangedFields(live)) == 0
}

// SettledState is what a workload is like while a step pauses.
type SettledState struct {
	// Template is the digest of the pod template, Replicas the requested size (0 for a kind without a size).
	Template string `json:"template"`
	Replicas int32  `json:"replicas"`
	// Surge is how many pods beyond its size a Deployment settled with: a halted Move had created them in addition to
	// the others.
	Surge int32 `json:"surge,omitempty"`
	// GateSeen is the generation of a Deployment when its minReadySeconds gate was seen in force on its ReplicaSet,
	// between a pause and the next Move.
	GateSeen int64 `json:"gateSeen,omitempty"`
	// Settings are the borrowed fields as they were when the workload settled, by JSON Pointer; null: the field is
	// absent. None while pods move.
	Settings map[string]json.RawMessage `json:"settings,omitempty"`
}

// ChangedFields returns the settings of a settled workload that another client has changed, sorted. live are the
// workload's, without absent fields.
func (r SettledState) ChangedFields(live map[string]json.RawMessage) (paths []string) {
	for _, path := range slices.Sorted(maps.Keys(r.Settings)) {
		if !workload.SameJSON(r.Settings[path], live[path]) {
			paths = append(paths, path)
		}
	}
	return paths
}

// UnblocksController reports whether a change by another client lets the workload's own controller move pods of both
// versions: changed settings or, if the template is not what the rollout releases (edited), the template. A Deployment
// that was left paused moves only when it is unpaused.
func (r SettledState) UnblocksController(disturbed []string, edited bool) bool {
	const paused = "/spec/paused"
	if string(r.Settings[paused]) == "true" {
		return slices.Contains(disturbed, paused)
	}
	return edited || len(disturbed) > 0
}

// SettledOn returns the value of AnnotationSettled among these annotations; nil if it is absent or cannot be read.
func SettledOn(annotations map[string]string) *SettledState {
	var s SettledState
	if json.Unmarshal([]byte(annotations[AnnotationSettled]), &s) != nil {
		return nil
	}
	return &s
}

// ParseSaved reads the value of workload.AnnotationRollout.
func ParseSaved(text string) (*Saved, error) {
	var s Saved
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, err
	}
	return &s, nil
}

// SavedOn returns the value of workload.AnnotationRollout on a workload with these labels and annotations; "" if
// nothing is saved, or if the value is a copy that kubectl rollout undo restored from a ReplicaSet. An undo keeps the
// labels, and workload.LabelRollout names the release that saved something. If the claim is still that release's,
// nothing was undone, and the value is returned as it is.
func SavedOn(labels, annotations map[string]string) string {
	text, mark := annotations[workload.AnnotationRollout], labels[workload.LabelRollout]
	if text == "" || mark == "" {
		return ""
	}
	saved, err := ParseSaved(text)
	if err != nil || mark == workload.LabelClaimedValue { // written by an earlier version of Slipway
		return text
	}
	if mark != saved.Mark() && mark != markOf(annotations[workload.AnnotationClaimedBy]) {
		return ""
	}
	return text
}

// Mark is the value of workload.LabelRollout that belongs to it: a digest of the claim under which it was saved.
func (s Saved) Mark() string { return markOf(s.Claim) }

func markOf(claim string) string { return digest.Of(claim)[:16] }

// String is the annotation's value.
func (s Saved) String() string { return toJSON(s) }

// String is the annotation's value.
func (r SettledState) String() string { return toJSON(r) }

func toJSON(v any) string { return string(jsonpatch.Encode(v)) }

// The names by which tools of Kruise Rollouts recognise a release. A release of a Rollout object writes them where
// those tools look for them. (https://github.com/openkruise/rollouts/blob/master/pkg/util/constant.go)
const (
	// LabelRolloutID and LabelBatchID are on the pods that a release created: its rollout ID, and the step that created
	// them, from 1.
	LabelRolloutID = "rollouts.kruise.io/rollout-id"
	LabelBatchID   = "rollouts.kruise.io/rollout-batch-id"
	// AnnotationInProgressing is on the workload while its release lasts: {"rolloutName": …}.
	AnnotationInProgressing = "rollouts.kruise.io/in-progressing"
	// LabelStableRevision is the revision that served before, on the workload while its release lasts.
	LabelStableRevision = "rollouts.kruise.io/stable-revision"
	// AnnotationExtraStatus reports a Deployment's new pods while a step pauses: {"updatedReadyReplicas": …,
	// "expectedUpdatedReplicas": …}.
	AnnotationExtraStatus = "rollouts.kruise.io/deployment-extra-status"
	// AnnotationOriginalStrategy is on the workload of a blue-green while its release lasts: the limits that it had
	// before.
	AnnotationOriginalStrategy = "rollouts.kruise.io/original-deployment-strategy"
	// AnnotationOriginalSpec is on a custom object while a release routes by it: its original {"spec", "labels",
	// "annotations"}.
	AnnotationOriginalSpec = "rollouts.kruise.io/original-spec-configuration"
	// LabelCanaryDeployment is on the extra Deployment: the name of the workload that it belongs to.
	LabelCanaryDeployment = "rollouts.kruise.io/canary-deployment"
)

// InProgressing is the value of AnnotationInProgressing.
func InProgressing(rollout string) string {
	return toJSON(map[string]string{"rolloutName": rollout})
}

// ExtraStatus is the value of AnnotationExtraStatus.
func ExtraStatus(ready, expected int32) string {
	return toJSON(struct {
		Ready    int32 `json:"updatedReadyReplicas"`
		Expected int32 `json:"expectedUpdatedReplicas"`
	}{ready, expected})
}

// OriginalStrategy is the value of AnnotationOriginalStrategy.
type OriginalStrategy struct {
	MaxUnavailable          *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	MaxSurge                *intstr.IntOrString `json:"maxSurge,omitempty"`
	MinReadySeconds         int32               `json:"minReadySeconds,omitempty"`
	ProgressDeadlineSeconds *int32              `json:"progressDeadlineSeconds,omitempty"`
}

// String is the annotation's value.
func (s OriginalStrategy) String() string { return toJSON(s) }

// UnderRepair is the failure of a write to an object that an operator repairs by hand (AnnotationRepair).
func UnderRepair(object, by string) *failure.Error {
	return failure.New(failure.Drift, "%s is being repaired by %s: nothing is written to it. When that is done, "+
		"remove its annotation %s and retry, or end the rollout", object, by, AnnotationRepair)
}
