package workloadops

// Kinds of workload that START, STOP and RESTART act on, all of API version apps/v1.
const (
	KindDeployment  = "Deployment"
	KindStatefulSet = "StatefulSet"
	KindDaemonSet   = "DaemonSet"
)

// APIVersion is the API version of the workloads that this package decides on.
const APIVersion = "apps/v1"

// AnnotationLeftAt stands beside AnnotationReplicas on a workload that an unfinished START or STOP left half way: the size it was left at.
// The remembered size counts only while the workload has no pods or still has that size; once somebody else scales it, theirs counts.
const AnnotationLeftAt = "slipway.io/left-at"

// AnnotationRollout is what a rollout has saved on a workload, from its first write to its last (rollout.AnnotationSaved).
const AnnotationRollout = "slipway.io/rollout"

// LabelClaimedValue is the value of LabelClaimed.
const LabelClaimedValue = "true"

// LabelRollout stands on a workload as long as AnnotationRollout does. Without it the annotation is a stale copy: ReplicaSets keep copies of their Deployment's
// annotations, and kubectl rollout undo brings them back long after the rollout has ended; labels stay as they are.
const LabelRollout = "slipway.io/rollout"

// Update types of a workload: spec.strategy.type of a Deployment, spec.updateStrategy.type of the others.
const (
	UpdateRolling  = "RollingUpdate"
	UpdateRecreate = "Recreate"
	UpdateOnDelete = "OnDelete"
)

// Settings that an operation may borrow, by the path at which they stand in the object.
const (
	PathDeploymentUnavailable = "/spec/strategy/rollingUpdate/maxUnavailable"
	PathDeploymentSurge       = "/spec/strategy/rollingUpdate/maxSurge"
	PathUpdateStrategy        = "/spec/updateStrategy"
	PathUpdateUnavailable     = "/spec/updateStrategy/rollingUpdate/maxUnavailable"
	PathUpdateSurge           = "/spec/updateStrategy/rollingUpdate/maxSurge"
)
