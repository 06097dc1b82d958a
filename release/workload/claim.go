package workload

import (
	"fmt"
	"regexp"
	"strings"
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
// workflow that the request names. A claim of another engine is never replaced, because only that engine can tell
// whether its workflow is dead.
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
		"there; if engine %s no longer "+
		"exists, %s", h.Engine.Name, h.Engine.Name, remedy)
}

const // ActivityClaimHolder reports whether the claim of a workload may be taken over. ClaimHolderRequest →
// ClaimHolderResult.
ActivityClaimHolder = "home.ClaimHolder"

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
}

// QueryState is the query for the complete status of a release: plan.Task for a task, plan.ServiceStatus for one of its
// items.
const QueryState = "state"

// SearchAttributeState is the search attribute that holds a release's state.
const SearchAttributeState = "SlipwayState"
