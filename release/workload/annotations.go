package workload

import "slipway.io/slipway/release/source"

// Names that Slipway writes on a workload.
const (
	// AnnotationClaimedBy holds the workflow, run and engine that are releasing the workload: Holder.String().
	AnnotationClaimedBy = "slipway.io/claimed-by"
	// LabelClaimed marks a claimed workload, and every other object that a rollout borrows or creates. One filtered
	// watch per party and kind (SelectClaimed) therefore covers everything that rollouts and other operations hold.
	LabelClaimed      = "slipway.io/claimed"
	LabelClaimedValue = "true"
	SelectClaimed     = LabelClaimed + "=" + LabelClaimedValue
	// LabelClaimedServing is the label's value on a Deployment that an operation on a serving holds. SelectClaimed
	// excludes it: servings have their own watch.
	LabelClaimedServing = "serving"
	// AnnotationReplicas stores the size of a workload that STOP scaled to zero.
	AnnotationReplicas = "slipway.io/replicas"
	// AnnotationLeftAt is set together with AnnotationReplicas on a workload that an unfinished START or STOP left at
	// an intermediate size: that size. The stored size is valid only while the workload has no pods or still has that
	// size; after another client scales it, it is stale.
	AnnotationLeftAt = "slipway.io/left-at"
	// AnnotationOriginal holds, as JSON, what the running operation borrowed from the workload and restores at its end.
	AnnotationOriginal = "slipway.io/original"
	// AnnotationRestartedBy is set on the pod template by RESTART.
	AnnotationRestartedBy = "slipway.io/restarted-by"
	// AnnotationDeployed is set by a deploy on the pod template, and so on its pods: the marker of what was deployed.
	AnnotationDeployed = source.AnnotationDeployed
	// AnnotationRollout is on the workload from a rollout's first write to its last: rollout.Saved, as JSON. If it is
	// there without a claim, a frozen split waits for the next release or for a rollback.
	AnnotationRollout = "slipway.io/rollout"
	// LabelRollout is set on a workload together with AnnotationRollout. Its value is a digest of the claim under which
	// the annotation was written. Without the label, or with another value, the annotation is a stale copy: ReplicaSets
	// keep copies of their Deployment's annotations, and kubectl rollout undo restores them long after the rollout; it
	// does not change labels.
	LabelRollout = AnnotationRollout
)

// Update types of a workload: spec.strategy.type of a Deployment, spec.updateStrategy.type of the others.
const (
	UpdateRolling  = "RollingUpdate"
	UpdateRecreate = "Recreate"
	UpdateOnDelete = "OnDelete"
)

// Settings that an operation may borrow, as JSON Pointers into the object.
const (
	PathDeploymentUnavailable = "/spec/strategy/rollingUpdate/maxUnavailable"
	PathDeploymentSurge       = "/spec/strategy/rollingUpdate/maxSurge"
	PathUpdateStrategy        = "/spec/updateStrategy"
	PathUpdateUnavailable     = "/spec/updateStrategy/rollingUpdate/maxUnavailable"
	PathUpdateSurge           = "/spec/updateStrategy/rollingUpdate/maxSurge"
)

// Borrowable returns the settings that an operation may borrow.
func (k Kind) Borrowable() []string {
	switch {
	case k.Means == Limits:
		return []string{PathDeploymentUnavailable, PathDeploymentSurge}
	case k.PerNode:
		return []string{PathUpdateUnavailable, PathUpdateSurge}
	}
	return []string{PathUpdateStrategy, PathUpdateUnavailable}
}
