package workloadops

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"slipway.io/slipway/release/source"
)

// Kinds of workload that START, STOP and RESTART act on, all of APIVersion.
const (
	APIVersion      = "apps/v1"
	KindDeployment  = "Deployment"
	KindStatefulSet = "StatefulSet"
	KindDaemonSet   = "DaemonSet"
)

// Names that Slipway writes on a workload.
const (
	// AnnotationClaimedBy holds the workflow, run and engine that are releasing the workload: Holder.String().
	AnnotationClaimedBy = "slipway.io/claimed-by"
	// LabelClaimed marks a claimed workload, and every other object that a rollout borrows or makes, so that one filtered watch per party
	// and kind sees all that rollouts and other operations on workloads hold (SelectClaimed).
	LabelClaimed      = "slipway.io/claimed"
	LabelClaimedValue = "true"
	SelectClaimed     = LabelClaimed + "=" + LabelClaimedValue
	// LabelClaimedServing is its value on a Deployment that an operation on a serving holds. SelectClaimed leaves it out: servings have a watch of their own.
	LabelClaimedServing = "serving"
	// AnnotationReplicas remembers the size of a workload that STOP scaled to zero.
	AnnotationReplicas = "slipway.io/replicas"
	// AnnotationLeftAt stands beside AnnotationReplicas on a workload that an unfinished START or STOP left half way: the size it was left at.
	// The remembered size counts only while the workload has no pods or still has that size; once somebody else scales it, theirs counts.
	AnnotationLeftAt = "slipway.io/left-at"
	// AnnotationOriginal holds, as JSON, what the running operation borrowed from the workload, to be given back at its end.
	AnnotationOriginal = "slipway.io/original"
	// AnnotationRestartedBy is stamped on the pod template by RESTART.
	AnnotationRestartedBy = "slipway.io/restarted-by"
	// AnnotationDeployed stands on a pod template, and so on its pods, that a deploy made: the marker of what was deployed.
	AnnotationDeployed = source.AnnotationDeployed
	// AnnotationRollout is what a rollout has saved on a workload, from its first write to its last (rollout.AnnotationSaved).
	AnnotationRollout = "slipway.io/rollout"
	// LabelRollout stands on a workload as long as AnnotationRollout does, with a digest of the claim under which that was saved. Without it, or with
	// another's, the annotation is a stale copy: ReplicaSets keep copies of their Deployment's annotations, and kubectl rollout undo brings them back
	// long after the rollout; labels stay as they are.
	LabelRollout = "slipway.io/rollout"
)

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

// gateLength is how many characters of the digest a gate has.
const gateLength = 16

// Gate is an opaque token of what a person approves: whoever approves sends back what they saw, and what has changed since has another one.
func Gate(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:gateLength]
}

// IsGate says whether a text can ever have been a gate.
func IsGate(text string) bool {
	_, err := hex.DecodeString(text)
	return err == nil && len(text) == gateLength
}
