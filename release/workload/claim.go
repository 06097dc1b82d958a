package workload

import (
	"fmt"
	"regexp"
	"strings"

	"slipway.io/slipway/release/source"
)

// Engine identifies a Slipway engine in a claim: UID is unique, Name is for display.
type Engine struct {
	UID  string `json:"uid"`
	Name string `json:"name"`
}

// Differs reports whether both engines are known and not the same. A claim of an earlier build names no engine, so its
// owner is unknown; it is treated as a claim of this engine.
func (e Engine) Differs(from Engine) bool {
	return e.UID != "" && from.UID != "" && e.UID != from.UID
}

// Holder is the holder of a workload: a workflow, its run, and the engine that runs it.
type Holder struct {
	WorkflowID, RunID string
	// Engine has no UID if an earlier build or a user wrote the claim.
	Engine Engine
}

// String returns the claim's value: "<workflow ID>@<run ID>@<engine's name>/<engine's UID>", without an engine
// "<workflow ID>@<run ID>".
func (h Holder) String() string {
	claim := h.WorkflowID + "@" + h.RunID
	if h.Engine.UID != "" {
		claim += "@" + h.Engine.Name + "/" + h.Engine.UID
	}
	return claim
}

var (
	claimWithEngine = regexp.MustCompile(`^(.*)@([^@]*)@([^@/]*)/([^@]+)$`)
	claimOfRun      = regexp.MustCompile(`^(.*)@([^@]*)$`)
)

// ParseHolder parses a claim's value. A run ID contains no slash, so a value without an engine is not misread. A value
// without a run, as a user may write it, is a workflow ID.
func ParseHolder(value string) Holder {
	if m := claimWithEngine.FindStringSubmatch(value); m != nil {
		return Holder{WorkflowID: m[1], RunID: m[2], Engine: Engine{UID: m[4], Name: m[3]}}
	}
	if m := claimOfRun.FindStringSubmatch(value); m != nil {
		return Holder{WorkflowID: m[1], RunID: m[2]}
	}
	return Holder{WorkflowID: value}
}

// NameFor returns the name of a holder in messages of an engine: its workflow, and its engine if that is another one.
func (h Holder) NameFor(engine Engine) string {
	if h.Engine.Differs(engine) {
		return h.WorkflowID + " of engine " + h.Engine.Name
	}
	return h.WorkflowID
}

// HolderName returns the name of the holder of the claim theirs, in messages of the release with the claim ours.
func HolderName(ours, theirs string) string {
	return ParseHolder(theirs).NameFor(ParseHolder(ours).Engine)
}

// IsForeign reports whether the claim theirs was made by another engine than the claim ours.
func IsForeign(ours, theirs string) bool {
	return ParseHolder(theirs).Engine.Differs(ParseHolder(ours).Engine)
}

// MayTakeOver reports whether ours may replace the current claim of an object: it must be the claim of the dead
// workflow that the request names (ActivityClaimHolder judges whether it is dead, activities/centre/claim_holder.go). A
// claim of another engine is never replaced, because only that engine can tell whether its workflow is dead.
func MayTakeOver(ours, dead, current string) bool {
	return dead != "" && current == dead && !IsForeign(ours, current)
}

// ForeignReason explains why another engine's claim is not taken over, and what the user can do.
func ForeignReason(h Holder) string {
	remedy := "remove its annotation " + AnnotationClaimedBy
	if parts := strings.Split(h.WorkflowID, "/"); len(parts) == 4 && parts[0] == "rollout" {
		remedy = fmt.Sprintf("restore the workload with `slipway repair %s/%s --to stable --engine %s`", parts[2],
			parts[3], h.Engine.Name)
	}
	return fmt.Sprintf("only engine %s can take over its own claims: wait until that release has ended, or stop it "+
		"there; if engine %s no longer exists, %s", h.Engine.Name, h.Engine.Name, remedy)
}

// ActivityClaimHolder reports whether the claim of a workload may be taken over. ClaimHolderRequest →
// ClaimHolderResult.
const ActivityClaimHolder = "home.ClaimHolder"

// ClaimHolderRequest is the input of ActivityClaimHolder: a claim's value and the task that wants the workload.
type ClaimHolderRequest struct {
	Claim string `json:"claim"`
	// Task is the task that wants the workload, Plan its plan: it may take over from an interrupted task of the same
	// plan.
	Task string `json:"task"`
	Plan string `json:"plan"`
}

// ClaimHolderResult reports whether the claim's holder is dead, so that the claim may be taken over, and why (not).
type ClaimHolderResult struct {
	Dead   bool   `json:"dead"`
	Reason string `json:"reason"`
	// Ended is true if the holder is dead because it has ended and given back what it had borrowed.
	Ended bool `json:"ended,omitempty"`
}

// QueryState is the query for the complete status of a release: plan.Task for a task, plan.ServiceStatus for one of its
// items.
const QueryState = "state"

// SearchAttributeState is the search attribute that holds a release's state.
const SearchAttributeState = "SlipwayState"

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

// PathPodManagement is the field of a StatefulSet that says whether its pods start one after the other, as a JSON
// Pointer.
const PathPodManagement = "/spec/podManagementPolicy"

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
