package machine

import (
	"time"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
)

// State is everything that a rollout has to remember: the state of its Machine, the status included. Its workflow takes it along when it
// continues as new. It is only ever extended.
type State struct {
	// Status is without its history, which the log has.
	Status rollout.Status `json:"status"`
	Log    audit.Log      `json:"log"`
	Stage  Stage          `json:"stage"`
	// Ending is where the rollout is being brought to, "" while it goes through its steps.
	Ending rollout.Ending `json:"ending,omitempty"`
	// FinalMove is the next move of the finalising table, an index.
	FinalMove int `json:"finalMove,omitempty"`
	// Visit counts how often a step was entered: part of the gate.
	Visit int `json:"visit"`
	// Claimed says that Begin was asked and may have claimed the workload: it has to be released.
	Claimed bool `json:"claimed,omitempty"`
	// Unsettled says that the workload's own update was still under way when the release was about to claim it: it is waited for.
	Unsettled string `json:"unsettled,omitempty"`
	// Moved says that a Move was asked: the workload may have new pods.
	Moved bool `json:"moved,omitempty"`
	// PodsUnsettled says that a Move may not have brought the workload to rest: it was not to, or nobody knows how far it came.
	PodsUnsettled bool `json:"loose,omitempty"`
	// Stuck says that a new pod of the step is in trouble that may pass, and which.
	Stuck string `json:"stuck,omitempty"`
	// Pinned and Routed say what may have been done to the Services and the routes.
	Pinned TriState `json:"pinned,omitempty"`
	Routed TriState `json:"routed,omitempty"`
	// CanaryServices says that there may be canary Services.
	CanaryServices bool `json:"canaryServices,omitempty"`
	// Template is the new template's digest, "" until it is known. StableHash and CanaryHash are values of the pods' revision label.
	Template   string `json:"template,omitempty"`
	StableHash string `json:"stableHash,omitempty"`
	CanaryHash string `json:"canaryHash,omitempty"`
	// From is how many pods were new when a rollback in batches began; Counting says that this is not known yet.
	From     int32 `json:"from,omitempty"`
	Counting bool  `json:"counting,omitempty"`
	// Check has the pods looked at, or seen to, once more while a step rests.
	Check Check `json:"check,omitempty"`
	// UID is the workload's own.
	UID string `json:"uid,omitempty"`
	// Observed says that somebody else's change was noticed while something else was being done: it is looked at when the step rests.
	Observed bool `json:"observed,omitempty"`
	// PutBack has the next write replace what somebody else has edited (verb retry after drift).
	PutBack bool `json:"putBack,omitempty"`
	// PutBackPods says that it is the workload that was edited: routes that are made before its pods are put back do not count.
	PutBackPods bool `json:"putBackPods,omitempty"`
	// Promoted skips the pauses that are left.
	Promoted bool `json:"promoted,omitempty"`
	// Expired says that the approval was waited for too long: somebody has to resume.
	Expired bool `json:"expired,omitempty"`
	// PausedBy says who holds it, in words.
	PausedBy string   `json:"pausedBy,omitempty"`
	Trouble  *Trouble `json:"trouble,omitempty"`
	// GraceUntil is until when routes are left to take effect, RestUntil until when a step rests, ExpiresAt when its approval expires.
	GraceUntil *time.Time `json:"graceUntil,omitempty"`
	RestUntil  *time.Time `json:"restUntil,omitempty"`
	ExpiresAt  *time.Time `json:"expiresAt,omitempty"`
	// Unreachable is the system trouble that keeps the party from answering, "" while it answers; UnreachableCount how often in a row it was
	// met, and AgainAt when it is tried again.
	Unreachable      string     `json:"away,omitempty"`
	UnreachableCount int        `json:"awayCount,omitempty"`
	AgainAt          *time.Time `json:"againAt,omitempty"`
	// SpentSeconds is what interrupted attempts have used of the action's deadline.
	SpentSeconds int64 `json:"spentSeconds,omitempty"`
	// Holder is a claim in the way that is being asked after, TakeOver the claim of a dead workflow.
	Holder   string `json:"holder,omitempty"`
	TakeOver string `json:"takeOver,omitempty"`
	// Adopted is what an earlier release left, while it is being brought home.
	Adopted *rollout.Adopted `json:"adopted,omitempty"`
	// Shared is what the TrafficRouting asks, SharedClaim under which claim; SharedRouted says that its routes are made.
	Shared       *rollout.SharedTraffic `json:"shared,omitempty"`
	SharedClaim  string                 `json:"sharedClaim,omitempty"`
	SharedRouted bool                   `json:"sharedRouted,omitempty"`
	// Leaving is how far leaving the TrafficRouting is.
	Leaving Leaving `json:"leaving,omitempty"`
	// Superseding says that a newer release takes this one's place when it is over.
	Superseding bool `json:"superseding,omitempty"`
	// Closing is the phase in which it closes.
	Closing rollout.Phase `json:"closing,omitempty"`
	// Note is what the last action said, for the reason at the end.
	Note string `json:"note,omitempty"`
}

// Stage is which part of its way a rollout is on.
type Stage string

// The stages.
const (
	// StageBegin claims the workload.
	StageBegin Stage = "Begin"
	// StageAdopt brings home what an earlier release left.
	StageAdopt Stage = "Adopt"
	// StageHold takes part in a shared TrafficRouting.
	StageHold Stage = "Hold"
	// StageSteps goes through the steps, StageBack through the steps of a rollback in batches.
	StageSteps Stage = "Steps"
	StageBack  Stage = "Back"
	// StageFinal finalises.
	StageFinal Stage = "Final"
	// StageComplete writes the record; StageOver: nothing is left to do.
	StageComplete Stage = "Complete"
	StageOver     Stage = "Over"
)

// TriState is whether a thing was done: not, perhaps (it was asked), or surely.
type TriState string

// The values of a TriState.
const (
	no    TriState = ""
	maybe TriState = "maybe"
	yes   TriState = "yes"
)

// Check is a Move that is made while a step rests.
type Check string

// The checks.
const (
	CheckNone Check = ""
	// CheckLook looks at what somebody else has changed; CheckMove sees to the step's pods again.
	CheckLook Check = "look"
	CheckMove Check = "move"
)

// Leaving is how far the leaving of a shared TrafficRouting is.
type Leaving string

// The parts of leaving: asked whether it is the last holder, restoring the routes, telling so.
const (
	LeavingAsk     Leaving = ""
	LeavingRestore Leaving = "restore"
	LeavingTell    Leaving = "tell"
)
