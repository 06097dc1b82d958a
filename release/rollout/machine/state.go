package machine

import (
	"time"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// State is everything that a Machine has to remember, the status included. A run that continues as new takes it along.
// It is only ever extended: recorded histories carry it. A field keeps its JSON name when its Go name changes.
type State struct {
	// Status is the rollout without its history, which is in Log.
	Status rollout.Status `json:"status"`
	Log    audit.Log      `json:"log"`
	Stage  stage          `json:"stage"`
	// Ending is what the rollout is finalised to, "" while it goes through its steps.
	Ending rollout.Ending `json:"ending,omitempty"`
	// FinalMoveIndex is the index of the next move in the finalising table.
	FinalMoveIndex int `json:"finalMove,omitempty"`
	// Visit counts how often a step was entered. It is part of the approval gate.
	Visit int `json:"visit"`
	// MayHoldClaim is true from the start of a Begin on: the workload may be claimed and has to be released.
	MayHoldClaim bool `json:"claimed,omitempty"`
	// WorkloadUpdating is why the release has to wait before it claims the workload: the workload's own update is still
	// under way. "": it is not.
	WorkloadUpdating string `json:"unsettled,omitempty"`
	// AlreadyComplete is true if every pod already runs the version that the workload declares. The release only gives
	// the pods their numbers.
	AlreadyComplete bool `json:"whole,omitempty"`
	// MoveStarted is true once a Move was started: the workload may have new pods.
	MoveStarted bool `json:"moved,omitempty"`
	// PodsUnsettled is true while a Move may have left pods in the middle of a step: it was not asked to settle the
	// workload, or its result is unknown.
	PodsUnsettled bool `json:"loose,omitempty"`
	// StuckPod names a new pod of the step that is in trouble which may pass, and the trouble ("pod a:
	// ImagePullBackOff").
	StuckPod string `json:"stuck,omitempty"`
	// Pinned and Routed are what may have been done to the Services and to the routes.
	Pinned triState `json:"pinned,omitempty"`
	Routed triState `json:"routed,omitempty"`
	// LastTraffic is the split that the routes were last asked for.
	LastTraffic *strategy.Traffic `json:"sent,omitempty"`
	// RouteRestore is a change of Services or routes by another client that is being reverted.
	RouteRestore *routeRestore `json:"routesBack,omitempty"`
	// CanaryServices is true if there may be canary Services.
	CanaryServices bool `json:"canaryServices,omitempty"`
	// NewTemplate is the new template's digest, "" until it is known. StableHash and CanaryHash are values of the pods'
	// revision label.
	NewTemplate string `json:"template,omitempty"`
	StableHash  string `json:"stableHash,omitempty"`
	CanaryHash  string `json:"canaryHash,omitempty"`
	// RollbackFrom is how many pods were new when a rollback in batches began. CountPending is true until that number
	// is known.
	RollbackFrom int32 `json:"from,omitempty"`
	CountPending bool  `json:"counting,omitempty"`
	// Recheck asks for one more Move while a step pauses: to inspect the pods, or to make the step again.
	Recheck recheck `json:"check,omitempty"`
	// NoStablePods is true if every pod of a blue-green is of the new version, because another client let the
	// workload's own controller replace the rest.
	NoStablePods bool `json:"stableGone,omitempty"`
	// BriefPausesInLeg lets a leg wait through pauses of at most maxBriefPause, and lets finalising be a leg of its
	// own.
	BriefPausesInLeg bool `json:"briefRests,omitempty"`
	// ClaimWithMove lets one write take the claim and begin the Move (rollout.BeginResult.TemplateWritten). Every
	// command that ends the rollout then stops its first leg.
	ClaimWithMove bool `json:"oneWrite,omitempty"`
	// WorkloadUID is the UID of the workload.
	WorkloadUID string `json:"uid,omitempty"`
	// ChangeObserved is true if a change by another client was noticed during another action. The pods are inspected
	// when the step pauses.
	ChangeObserved bool `json:"observed,omitempty"`
	// RestoreCount is how often a change by another client was reverted since the step was entered.
	RestoreCount int `json:"disturbed,omitempty"`
	// OverwriteDrift lets the next write replace what another client has edited (verb retry after drift).
	OverwriteDrift bool `json:"putBack,omitempty"`
	// DriftOnPods is true if the workload itself was edited. OverwriteDrift then stays set until its pods are restored;
	// routes that are written before do not clear it.
	DriftOnPods bool `json:"putBackPods,omitempty"`
	// OverwriteRouteDrift lets the step's routes replace edits by another client once the pods are restored: the client
	// that edited the workload may have edited its Service at the same moment.
	OverwriteRouteDrift bool `json:"putBackRoutes,omitempty"`
	// Promoted skips the remaining pauses.
	Promoted bool `json:"promoted,omitempty"`
	// ApprovedVisit is the visit that was approved while the pods of its step were being inspected; 0: none.
	ApprovedVisit int `json:"approved,omitempty"`
	// ApprovalExpired is true if the approval did not come in time: the rollout waits for a resume.
	ApprovalExpired bool `json:"expired,omitempty"`
	// PausedBy is who paused the rollout and why, as text.
	PausedBy string `json:"pausedBy,omitempty"`
	// PausedByObject is true if the last pause came from the Rollout object.
	PausedByObject bool     `json:"pausedByObject,omitempty"`
	Trouble        *trouble `json:"trouble,omitempty"`
	// GraceUntil is when changed routes have taken effect, PauseUntil when the pause of the step ends,
	// ApprovalExpiresAt when its approval expires.
	GraceUntil        *time.Time `json:"graceUntil,omitempty"`
	PauseUntil        *time.Time `json:"restUntil,omitempty"`
	ApprovalExpiresAt *time.Time `json:"expiresAt,omitempty"`
	// Unreachable is why the party does not answer, "" while it does. UnreachableCount is how often in a row it did
	// not; RetryAt is when it is asked again.
	Unreachable      string     `json:"away,omitempty"`
	UnreachableCount int        `json:"awayCount,omitempty"`
	RetryAt          *time.Time `json:"againAt,omitempty"`
	// SpentSeconds is how much of the action's deadline interrupted attempts have used.
	SpentSeconds int64 `json:"spentSeconds,omitempty"`
	// BlockingClaim is another release's claim whose workflow is being checked. TakeOver is the claim of a dead
	// workflow, which may be replaced.
	BlockingClaim string `json:"holder,omitempty"`
	TakeOver      string `json:"takeOver,omitempty"`
	// Adopted is what an earlier release left on the workload, while it is being rolled back.
	Adopted *rollout.Adopted `json:"adopted,omitempty"`
	// Shared is what the TrafficRouting asks for, SharedClaim the claim under which its routes are written.
	// SharedRouted is true once its routes are made.
	Shared       *rollout.SharedTraffic `json:"shared,omitempty"`
	SharedClaim  string                 `json:"sharedClaim,omitempty"`
	SharedRouted bool                   `json:"sharedRouted,omitempty"`
	// Leaving is how far leaving the TrafficRouting has got.
	Leaving leaving `json:"leaving,omitempty"`
	// Redeclared is set, as text, when the workload declares another pod template than this release's. The command that
	// follows from it has not arrived yet.
	Redeclared string `json:"redeclared,omitempty"`
	// StableTemplate is the stable template's digest, "" until it is known.
	StableTemplate string `json:"stableTemplate,omitempty"`
	// RolledBackByTemplate is true if the rollback was caused by the workload itself: its template was set back to the
	// stable one.
	RolledBackByTemplate bool `json:"setBack,omitempty"`
	// Confirmed is true once the release was approved as Request.ConfirmReason demands.
	Confirmed bool `json:"confirmed,omitempty"`
	// EditedStrategy is the strategy as it was edited since the start; nil: it was not edited.
	EditedStrategy *strategy.Strategy `json:"strategy,omitempty"`
	// ObjectGeneration is the newest generation of the Rollout object that the release has taken in. AnsweredState is
	// the newest state of the object that a command responded to.
	ObjectGeneration int64 `json:"generation,omitempty"`
	AnsweredState    int64 `json:"answered,omitempty"`
	// WindowState is the last answer about release windows and freezes, nil before the first. WindowPending is true
	// while they may hold back what is about to begin, WindowOverridden once an approver has overridden them.
	WindowState      *windowState `json:"window,omitempty"`
	WindowPending    bool         `json:"unopened,omitempty"`
	WindowOverridden bool         `json:"overridden,omitempty"`
	// Superseding is true if a newer release replaces this one when it has ended.
	Superseding bool `json:"superseding,omitempty"`
	// FinalPhase is the phase in which the rollout ends, "" until that is decided.
	FinalPhase rollout.Phase `json:"closing,omitempty"`
	// LastMessage is the message of the last action's result, for the reason at the end.
	LastMessage string `json:"note,omitempty"`
}

// stage is the part of a rollout's life that it is in.
type stage string

const (
	// stageBegin claims the workload.
	stageBegin stage = "Begin"
	// stageAdopt rolls back what an earlier release left.
	stageAdopt stage = "Adopt"
	// stageJoin joins a shared TrafficRouting.
	stageJoin stage = "Hold"
	// stageSteps goes through the steps, stageRollback through the steps of a rollback in batches.
	stageSteps    stage = "Steps"
	stageRollback stage = "Back"
	// stageFinal finalises.
	stageFinal stage = "Final"
	// stageComplete writes the record. In stageDone nothing is left to do.
	stageComplete stage = "Complete"
	stageDone     stage = "Over"
)

// triState is whether something was done: no, maybe (it was asked for, with unknown result) or yes.
type triState string

const (
	no    triState = ""
	maybe triState = "maybe"
	yes   triState = "yes"
)

// recheck is a Move that is made while a step pauses.
type recheck string

const (
	recheckNone recheck = ""
	// recheckInspect inspects what another client has changed; recheckMove makes the step's pods again.
	recheckInspect recheck = "look"
	recheckMove    recheck = "move"
)

// leaving is how far leaving a shared TrafficRouting has got.
type leaving string

// The phases of leaving: ask whether this is the last holder, restore the routes, report that they are restored.
const (
	leavingAsk     leaving = ""
	leavingRestore leaving = "restore"
	leavingReport  leaving = "tell"
)
