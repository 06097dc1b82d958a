package rollout

import "k8s.io/apimachinery/pkg/util/intstr"

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
