package machine

import (
	"time"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// State is everything that a Machine has to remember, the status included. A run that continues as new takes it along.
// It is only ever extended: recorded histories carry it. A field keeps its JSON name when its Go name changes. Its
// groups are flat in JSON; the methods below the groups say which of them a step, a change of direction, a retry and a
// new beginning clear.
type State struct {
	// Status is the rollout without its history, which is in Log.
	Status rollout.Status `json:"status"`
	Log    audit.Log      `json:"log"`
	Stage  stage          `json:"stage"`
	// WorkloadUID is the UID of the workload.
	WorkloadUID string `json:"uid,omitempty"`
	// Promoted skips the remaining pauses.
	Promoted bool `json:"promoted,omitempty"`
	// LastMessage is the message of the last action's result, for the reason at the end.
	LastMessage string `json:"note,omitempty"`

	stepState
	podState
	trafficState
	holdState
	driftState
	partyState
	endState
	sharedState
	declaredState
	openingState
}

// stepState is the current visit of a step.
type stepState struct {
	// Visit counts how often a step was entered. It is part of the approval gate. ApprovedVisit is the visit that was
	// approved while the pods of its step were being inspected; 0: none.
	Visit         int `json:"visit"`
	ApprovedVisit int `json:"approved,omitempty"`
	// Recheck asks for one more Move while a step pauses: to inspect the pods, or to make the step again.
	Recheck recheck `json:"check,omitempty"`
	// PauseUntil is when the pause of the step ends, ApprovalExpiresAt when its approval expires. ApprovalExpired is
	// true if the approval did not come in time: the rollout waits for a resume.
	PauseUntil        *time.Time `json:"restUntil,omitempty"`
	ApprovalExpiresAt *time.Time `json:"expiresAt,omitempty"`
	ApprovalExpired   bool       `json:"expired,omitempty"`
}

// clearPause forgets the pause of the step and what it waited for. The visit stays.
func (s *stepState) clearPause() {
	*s = stepState{Visit: s.Visit, ApprovedVisit: s.ApprovedVisit}
}

// podState is what is known about the workload's pods.
type podState struct {
	// AlreadyComplete is true if every pod already runs the version that the workload declares. The release only gives
	// the pods their numbers.
	AlreadyComplete bool `json:"whole,omitempty"`
	// OverHung is the revision of the workload's own update over which the release began, because it hung; "": none.
	OverHung string `json:"overHung,omitempty"`
	// MoveStarted is true once a Move was started: the workload may have new pods.
	MoveStarted bool `json:"moved,omitempty"`
	// PodsUnsettled is true while a Move may have left pods in the middle of a step: it was not asked to settle the
	// workload, or its result is unknown.
	PodsUnsettled bool `json:"loose,omitempty"`
	// StuckPod names a new pod of the step that is in trouble which may pass, and the trouble ("pod a:
	// ImagePullBackOff").
	StuckPod string `json:"stuck,omitempty"`
	// NoStablePods is true if every pod of a blue-green is of the new version, because another client let the
	// workload's own controller replace the rest.
	NoStablePods bool `json:"stableGone,omitempty"`
	// StableHash and CanaryHash are the values of the pods' revision label by which routes select them. At the end the
	// status shows the workload's own hash instead.
	StableHash string `json:"stableHash,omitempty"`
	CanaryHash string `json:"canaryHash,omitempty"`
	// RollbackFrom is how many pods were new when a rollback in batches began. CountPending is true until that number
	// is known.
	RollbackFrom int32 `json:"from,omitempty"`
	CountPending bool  `json:"counting,omitempty"`
}

// trafficState is what may have been done to the rollout's own Services and routes.
type trafficState struct {
	Pinned triState `json:"pinned,omitempty"`
	Routed triState `json:"routed,omitempty"`
	// CanaryServices is true if there may be canary Services.
	CanaryServices bool `json:"canaryServices,omitempty"`
	// RepeatsSteps is true after a leg with unknown result, until routes are made: the steps from the current one on
	// may have been made already.
	RepeatsSteps bool `json:"repeats,omitempty"`
	// LastTraffic is the split that the routes were last asked for, GraceUntil when changed routes have taken effect.
	LastTraffic *strategy.Traffic `json:"sent,omitempty"`
	GraceUntil  *time.Time        `json:"graceUntil,omitempty"`
}

// untouched reports whether neither Services nor routes may have been changed.
func (s trafficState) untouched() bool { return s.Pinned == no && s.Routed == no && !s.CanaryServices }

// holdState is why the rollout does not continue until an operator acts.
type holdState struct {
	Trouble *trouble `json:"trouble,omitempty"`
	// PausedBy is who paused the rollout and why, as text. PausedByObject is true if the last pause came from the
	// Rollout object.
	PausedBy       string `json:"pausedBy,omitempty"`
	PausedByObject bool   `json:"pausedByObject,omitempty"`
}

// driftState is what another client has changed, and what is to be restored of it.
type driftState struct {
	// ChangeObserved is true if a change by another client was noticed during another action. The pods are inspected
	// when the step pauses.
	ChangeObserved bool `json:"observed,omitempty"`
	// RouteRestore is a change of Services or routes by another client that is being reverted.
	RouteRestore *routeRestore `json:"routesBack,omitempty"`
	// RestoreCount is how often a change by another client was reverted since the step was entered.
	RestoreCount int `json:"disturbed,omitempty"`
	// Restorations is how often that was the case since the release began.
	Restorations int `json:"restorations,omitempty"`
	// OverwriteDrift lets the next write replace what another client has edited (verb retry after drift).
	OverwriteDrift bool `json:"putBack,omitempty"`
	// DriftOnPods is true if the workload itself was edited. OverwriteDrift then stays set until its pods are restored;
	// routes that are written before do not clear it.
	DriftOnPods bool `json:"putBackPods,omitempty"`
	// OverwriteRouteDrift lets the step's routes replace edits by another client once the pods are restored: the client
	// that edited the workload may have edited its Service at the same moment.
	OverwriteRouteDrift bool `json:"putBackRoutes,omitempty"`
}

// partyState is what is known about the party and about the claim on its workload.
type partyState struct {
	// MayHoldClaim is true from the start of a Begin on: the workload may be claimed and has to be released.
	MayHoldClaim bool `json:"claimed,omitempty"`
	// WorkloadUpdating is why the release has to wait before it claims the workload: the workload's own update is still
	// under way. "": it is not.
	WorkloadUpdating string `json:"unsettled,omitempty"`
	// BlockingClaim is another release's claim whose workflow is being checked. TakeOver is the claim of a dead
	// workflow, which may be replaced.
	BlockingClaim string `json:"holder,omitempty"`
	TakeOver      string `json:"takeOver,omitempty"`
	// TakeOverEnded is true if that workflow has ended and given everything back.
	TakeOverEnded bool `json:"takeOverEnded,omitempty"`
	// Unreachable is why the party does not answer, "" while it does. UnreachableCount is how often in a row it did
	// not; RetryAt is when it is asked again.
	Unreachable      string     `json:"away,omitempty"`
	UnreachableCount int        `json:"awayCount,omitempty"`
	RetryAt          *time.Time `json:"againAt,omitempty"`
	// Spent is how many seconds of their deadlines the unfinished actions have used since the step was entered
	// (Action.deadline).
	Spent map[string]int64 `json:"spent,omitempty"`
}

// answered forgets that the party did not answer.
func (s *partyState) answered() { s.Unreachable, s.UnreachableCount = "", 0 }

// endState is how the rollout ends, and how far that has got.
type endState struct {
	// Ending is what the rollout is finalised to, "" while it goes through its steps.
	Ending rollout.Ending `json:"ending,omitempty"`
	// FinalMoveIndex is the index of the next move in the finalising table.
	FinalMoveIndex int `json:"finalMove,omitempty"`
	// Adopted is what an earlier release left on the workload, while it is being rolled back.
	Adopted *rollout.Adopted `json:"adopted,omitempty"`
	// RolledBackByTemplate is true if the rollback was caused by the workload itself: its template was set back to the
	// stable one.
	RolledBackByTemplate bool `json:"setBack,omitempty"`
	// Superseding is true if a newer release replaces this one when it has ended.
	Superseding bool `json:"superseding,omitempty"`
	// ReleasedAs is the version that the workload ran when its finalising found that it had been released before, if
	// that is not the version that the ending wanted.
	ReleasedAs rollout.Side `json:"releasedAs,omitempty"`
	// FinalPhase is the phase in which the rollout ends, "" until that is decided.
	FinalPhase rollout.Phase `json:"closing,omitempty"`
}

// sharedState is the TrafficRouting that the rollout shares with others.
type sharedState struct {
	// Shared is what the TrafficRouting asks for, SharedClaim the claim under which its routes are written.
	// SharedRouted is true once its routes are made.
	Shared       *rollout.SharedTraffic `json:"shared,omitempty"`
	SharedClaim  string                 `json:"sharedClaim,omitempty"`
	SharedRouted bool                   `json:"sharedRouted,omitempty"`
	// Leaving is how far leaving the TrafficRouting has got.
	Leaving leaving `json:"leaving,omitempty"`
}

// declaredState is what a release of a Rollout object has read from the object and its workload.
type declaredState struct {
	// Redeclared is set, as text, when the workload declares another pod template than this release's. The command that
	// follows from it has not arrived yet.
	Redeclared string `json:"redeclared,omitempty"`
	// Confirmed is true once the release was approved as Request.ConfirmReason demands.
	Confirmed bool `json:"confirmed,omitempty"`
	// EditedStrategy is the strategy as it was edited since the start; nil: it was not edited.
	EditedStrategy *strategy.Strategy `json:"strategy,omitempty"`
	// ObjectGeneration is the newest generation of the Rollout object that the release has taken in. AnsweredState is
	// the newest state of the object that a command responded to, AnsweredCommands are the commands of that state.
	ObjectGeneration int64                     `json:"generation,omitempty"`
	AnsweredState    int64                     `json:"answered,omitempty"`
	AnsweredCommands []rollout.AnsweredCommand `json:"answeredCommands,omitempty"`
}

// openingState is what is known about release windows and freezes.
type openingState struct {
	// WindowState is the last answer about release windows and freezes, nil before the first. WindowPending is true
	// while they may hold back what is about to begin, WindowOverridden once an approver has overridden them.
	WindowState      *windowState `json:"window,omitempty"`
	WindowPending    bool         `json:"unopened,omitempty"`
	WindowOverridden bool         `json:"overridden,omitempty"`
}

// clearForStep clears what belongs to the visit of the step before. An edit of another step's routes is left to the
// operator.
func (s *State) clearForStep() {
	s.clearPause()
	s.Spent, s.StuckPod, s.RestoreCount, s.OverwriteRouteDrift = nil, "", 0, false
}

// clearForTurn clears what held the rollout or delayed it, for a change of direction.
func (s *State) clearForTurn() {
	s.ChangeObserved = s.ChangeObserved || s.Recheck == recheckInspect && s.Trouble == nil
	s.clearPause()
	s.release()
	s.answered()
	s.Spent, s.StuckPod, s.BlockingClaim, s.RepeatsSteps = nil, "", "", false
	s.RetryAt, s.RouteRestore, s.Redeclared, s.WindowOverridden = nil, nil, "", false
	s.Status.Phase = rollout.PhaseProgressing
}

// release clears why the rollout was held.
func (s *State) release() {
	s.holdState, s.Status.Paused = holdState{PausedByObject: s.PausedByObject}, false
}

// clearForRetry clears the trouble that a retry is to overcome. The rollout stays paused if it was.
func (s *State) clearForRetry() {
	s.Trouble, s.RestoreCount, s.Spent, s.Status.Phase = nil, 0, nil, rollout.PhaseProgressing
}

// clearForBeginning clears what was known while an earlier release's remains were rolled back: the release itself
// begins.
func (s *State) clearForBeginning() {
	s.trafficState = trafficState{LastTraffic: s.LastTraffic, GraceUntil: s.GraceUntil}
	s.sharedState = sharedState{}
	s.Adopted, s.FinalMoveIndex, s.MayHoldClaim, s.Status.Traffic = nil, 0, false, nil
	s.TakeOver, s.TakeOverEnded = "", false
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
