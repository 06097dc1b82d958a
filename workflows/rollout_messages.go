package workflows

import (
	"time"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
)

// TypeRollout is the workflow type of one release of one workload.
const TypeRollout = "Rollout"

// KindRollout is the SlipwayKind of a rollout. Its SlipwayState is the phase, SlipwayName and SlipwayNamespace are the rollout's.
const KindRollout = "rollout"

// RolloutInput starts a Rollout workflow.
type RolloutInput struct {
	Spec strategy.Spec `json:"spec"`
	// Queue is the party's queue.
	Queue string `json:"queue"`
	// Record is the name of the release's ReleaseRecord; it is completed at the end.
	Record    string    `json:"record"`
	CreatedAt time.Time `json:"createdAt"`
	// Actor, Reason and Via are who started it, why, and through which front door.
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
	Via    string `json:"via,omitempty"`
	// UnreachableBudgetSeconds is how long the party's cluster may be out of reach before the status says so.
	UnreachableBudgetSeconds int64 `json:"unreachableBudgetSeconds"`
	// BringHome only brings a frozen split home, to the stable version: the rollback of a rollout that was stopped to frozen.
	BringHome bool `json:"bringHome,omitempty"`
	// State is that of a run that was continued as new; nil at a start.
	State *machine.State `json:"state,omitempty"`
	// Newer is the release that takes this one's place when it is over; only in a run that was continued as new.
	Newer *RolloutInput `json:"newer,omitempty"`
}

// RolloutVerbRequest is the payload of every verb of a rollout, as Update and as Signal. All fields are optional.
type RolloutVerbRequest struct {
	VerbRequest
	// Step is the step that the verb was meant for, from 1; 0: the one that waits now.
	Step int `json:"step,omitempty"`
	// Gate is waitingFor.gate as the person saw it; "" is not checked.
	Gate string `json:"gate,omitempty"`
	// To is where a stop leaves the workload: stable (default), new, frozen.
	To rollout.StopTo `json:"to,omitempty"`
	// ToStep is where a jump goes, from 1.
	ToStep int `json:"toStep,omitempty"`
}

// SupersedeRequest is the payload of the Update `supersede`: a newer release of the same workload takes the place of this one.
// This one goes back to stable first, is recorded as over, and the workflow continues as the newer one.
type SupersedeRequest struct {
	VerbRequest
	Input RolloutInput `json:"input"`
}

// RolloutPreflight is the check of one rollout on its party's queue; PreflightOutcome.Rollout is its result.
type RolloutPreflight struct {
	Party   string                   `json:"party"`
	Queue   string                   `json:"queue"`
	Request rollout.PreflightRequest `json:"request"`
}
