package rollout

import "encoding/json"

// Names by which tools of Kruise Rollouts know a release: under a Rollout object they stand where those tools look for them.
// (https://github.com/openkruise/rollouts/blob/master/pkg/util/constant.go)
const (
	// LabelRolloutID and LabelBatchID are on the pods that a release has brought: its rollout ID, and the step that brought them, from 1.
	LabelRolloutID = "rollouts.kruise.io/rollout-id"
	LabelBatchID   = "rollouts.kruise.io/rollout-batch-id"
	// AnnotationInProgressing is on the workload for as long as its release lasts: {"rolloutName": …}.
	AnnotationInProgressing = "rollouts.kruise.io/in-progressing"
	// LabelStableRevision is the revision that served before, on the workload for as long.
	LabelStableRevision = "rollouts.kruise.io/stable-revision"
	// AnnotationExtraStatus tells of a Deployment's new pods while a step rests: {"updatedReadyReplicas": …, "expectedUpdatedReplicas": …}.
	AnnotationExtraStatus = "rollouts.kruise.io/deployment-extra-status"
	// LabelCanaryDeployment is on the extra Deployment: the name of the workload beside which it stands.
	LabelCanaryDeployment = "rollouts.kruise.io/canary-deployment"
)

// InProgressing is the value of AnnotationInProgressing.
func InProgressing(rollout string) string {
	raw, err := json.Marshal(map[string]string{"rolloutName": rollout})
	if err != nil {
		panic(err) // a text: it always marshals
	}
	return string(raw)
}

// ExtraStatus is the value of AnnotationExtraStatus.
func ExtraStatus(ready, expected int32) string {
	raw, err := json.Marshal(struct {
		Ready    int32 `json:"updatedReadyReplicas"`
		Expected int32 `json:"expectedUpdatedReplicas"`
	}{ready, expected})
	if err != nil {
		panic(err) // numbers: they always marshal
	}
	return string(raw)
}
