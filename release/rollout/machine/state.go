package machine

import (
	"time"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// State is everything that a Machine has to remember, the status included; a run that continues as new takes it along. Only ever extended.
type State struct {
	// Status is without its history, which the log has.
	Status rollout.Status `json:"status"`
	Log    audit.Log      `json:"log"`
	Stage  stage          `json:"stage"`
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
	// Whole says that every pod was of the version already that the workload declares: the release gives them their numbers.
	Whole bool `json:"whole,omitempty"`
	// Moved says that a Move was asked: the workload may have new pods.
	Moved bool `json:"moved,omitempty"`
	// PodsUnsettled says that a Move may not have brought the workload to rest: it was not to, or nobody knows how far it came.
	PodsUnsettled bool `json:"loose,omitempty"`
	// Stuck says that a new pod of the step is in trouble that may pass, and which.
	Stuck string `json:"stuck,omitempty"`
	// Pinned and Routed say what may have been done to the Services and the routes.
	Pinned triState `json:"pinned,omitempty"`
	Routed triState `json:"routed,omitempty"`
	// Sent is what the routes were last asked to do.
	Sent *strategy.Traffic `json:"sent,omitempty"`
	// RoutesBack is somebody else's change of Services or routes that is being put back.
	RoutesBack *routesBack `json:"routesBack,omitempty"`
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
	Check check `json:"check,omitempty"`
	// StableGone says that every pod is of the new version, as somebody else has let the workload's own controller go to the end.
	StableGone bool `json:"stableGone,omitempty"`
	// BriefRests says that rests which are soon over belong to the leg that comes to them, and that finalising may be a leg of its own.
	BriefRests bool `json:"briefRests,omitempty"`
	// OneWrite says that the claim and the first of the Move may be one write (rollout.BeginResult.Placed), and that whatever ends the rollout stops its
	// first leg.
	OneWrite bool `json:"oneWrite,omitempty"`
	// UID is the workload's own.
	UID string `json:"uid,omitempty"`
	// Observed says that somebody else's change was noticed while something else was being done: it is looked at when the step rests.
	Observed bool `json:"observed,omitempty"`
	// Disturbed is how often something that somebody else had changed was put back since the step was entered.
	Disturbed int `json:"disturbed,omitempty"`
	// PutBack has the next write replace what somebody else has edited (verb retry after drift).
	PutBack bool `json:"putBack,omitempty"`
	// PutBackPods says that it is the workload that was edited: routes that are made before its pods are put back do not count.
	PutBackPods bool `json:"putBackPods,omitempty"`
	// PutBackRoutes has what the step makes of its routes replace what somebody else has edited, once the pods are put back: whoever edited the workload may have
	// edited its Service in the same moment.
	PutBackRoutes bool `json:"putBackRoutes,omitempty"`
	// Promoted skips the pauses that are left.
	Promoted bool `json:"promoted,omitempty"`
	// Approved is the visit that was approved while its step was being looked at again; 0: none was.
	Approved int `json:"approved,omitempty"`
	// Expired says that the approval was waited for too long: somebody has to resume.
	Expired bool `json:"expired,omitempty"`
	// PausedBy says who holds it, in words.
	PausedBy string `json:"pausedBy,omitempty"`
	// PausedByObject says that the last pause was the Rollout object's own.
	PausedByObject bool     `json:"pausedByObject,omitempty"`
	Trouble        *trouble `json:"trouble,omitempty"`
	// GraceUntil is until when routes are left to take effect, RestUntil until when a step rests, ExpiresAt when its approval expires.
	GraceUntil *time.Time `json:"graceUntil,omitempty"`
	RestUntil  *time.Time `json:"restUntil,omitempty"`
	ExpiresAt  *time.Time `json:"expiresAt,omitempty"`
	// Unreachable is why the party does not answer, "" while it does; UnreachableCount how often in a row, AgainAt when it is tried again.
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
	Leaving leaving `json:"leaving,omitempty"`
	// Redeclared says, in words, that the workload declares another pod template than this release's: what that asks for is still to come.
	Redeclared string `json:"redeclared,omitempty"`
	// StableTemplate is the stable template's digest, "" until it is known.
	StableTemplate string `json:"stableTemplate,omitempty"`
	// SetBack says that it is rolled back since the workload itself was set back: what it declares is the stable template.
	SetBack bool `json:"setBack,omitempty"`
	// Confirmed says that somebody has approved what Asked.Confirm asks.
	Confirmed bool `json:"confirmed,omitempty"`
	// Strategy is the strategy as it was edited since the start; nil: as it was asked.
	Strategy *strategy.Strategy `json:"strategy,omitempty"`
	// Generation is the generation of the Rollout object that has been taken in, Answered the newest of its states that a command was the
	// answer to.
	Generation int64 `json:"generation,omitempty"`
	Answered   int64 `json:"answered,omitempty"`
	// Window is what is known of the policy's times, nil before they were asked. Unopened says that they hold back what is about to begin,
	// Overridden that somebody has approved it all the same.
	Window     *opening `json:"window,omitempty"`
	Unopened   bool     `json:"unopened,omitempty"`
	Overridden bool     `json:"overridden,omitempty"`
	// Superseding says that a newer release takes this one's place when it is over.
	Superseding bool `json:"superseding,omitempty"`
	// Closing is the phase in which it closes.
	Closing rollout.Phase `json:"closing,omitempty"`
	// Note is what the last action said, for the reason at the end.
	Note string `json:"note,omitempty"`
}

// stage is which part of its way a rollout is on.
type stage string

const (
	// stageBegin claims the workload.
	stageBegin stage = "Begin"
	// stageAdopt brings home what an earlier release left.
	stageAdopt stage = "Adopt"
	// stageHold takes part in a shared TrafficRouting.
	stageHold stage = "Hold"
	// stageSteps goes through the steps, stageBack through the steps of a rollback in batches.
	stageSteps stage = "Steps"
	stageBack  stage = "Back"
	// stageFinal finalises.
	stageFinal stage = "Final"
	// stageComplete writes the record; stageOver: nothing is left to do.
	stageComplete stage = "Complete"
	stageOver     stage = "Over"
)

// triState is whether a thing was done: not, perhaps (it was asked), or surely.
type triState string

const (
	no    triState = ""
	maybe triState = "maybe"
	yes   triState = "yes"
)

// check is a Move that is made while a step rests.
type check string

const (
	checkNone check = ""
	// checkLook looks at what somebody else has changed; checkMove sees to the step's pods again.
	checkLook check = "look"
	checkMove check = "move"
)

// leaving is how far the leaving of a shared TrafficRouting is.
type leaving string

// The parts of leaving: asked whether it is the last holder, restoring the routes, telling so.
const (
	leavingAsk     leaving = ""
	leavingRestore leaving = "restore"
	leavingTell    leaving = "tell"
)
