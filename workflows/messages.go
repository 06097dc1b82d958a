// Package workflows holds the durable processes of Slipway, one file per Temporal workflow type.
// Their code decides nothing by itself: decisions are made in release/, effects in activities, which it knows by name and message only.
package workflows

import (
	"time"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/window"
	"slipway.io/slipway/release/workloadops"
)

// QueueEngine is the task queue of all workflows and of the centre's own activities.
const QueueEngine = catalog.EngineQueue

// The workflow types.
const (
	TypeDeployPlan      = "DeployPlan"
	TypeServiceRelease  = "ServiceRelease"
	TypePreflight       = "Preflight"
	TypeRollout         = "Rollout"
	TypeServing         = "Serving"
	TypePackageSweep    = "PackageSweep"
	TypeServingStatus   = serving.TypeStatus
	TypeServingStatuses = serving.TypeStatuses
	// TypeServingCheck has a party's worker that has just started look for what should be there.
	TypeServingCheck = serving.TypeCheck
)

// The error types of a DeployPlan whose task failed and of a Rollout that closes in phase Failed: Temporal shows them as failed.
const (
	TypeTaskFailed    = "TaskFailed"
	TypeRolloutFailed = "RolloutFailed"
)

// The SlipwayKind of each. SlipwayState is a task's state, a rollout's phase or an operation's stage; SlipwayName the name, or ID.
const (
	KindTask    = "task"
	KindRollout = "rollout"
	KindServing = "serving"
)

// QueryState answers the whole status: plan.Task, plan.ServiceStatus, rollout.Status or ServingState.
const QueryState = workloadops.QueryState

// Messages are only ever extended: recorded histories carry them.

// DeployPlanInput starts a DeployPlan workflow. The snapshot itself is in the task's ReleaseRecord: history carries an outline only.
type DeployPlanInput struct {
	Task      string    `json:"task"`
	Plan      string    `json:"plan"`
	Comment   string    `json:"comment,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	// Actor and Reason are who executed the plan and why, as the caller said.
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Via is the front door: http, cli, console, temporal.
	Via string `json:"via,omitempty"`
	// RerunOf is the task that is run again, ReverseOf the one whose changes are taken back; "" for none.
	RerunOf   string `json:"rerunOf,omitempty"`
	ReverseOf string `json:"reverseOf,omitempty"`
	// Items are the plan's items in the document's order.
	Items []ItemOutline `json:"items"`
	// Times are when items may begin, all of which have to allow it; none: at any time.
	Times []window.Times `json:"times,omitempty"`
	// State is how far the task is, in a run that was continued as new; nil at a start.
	State *DeployPlanState `json:"state,omitempty"`
	// MaxConcurrent is how many services are released at once at most.
	MaxConcurrent int `json:"maxConcurrent"`
	// MaxConcurrentWorkloads bounds the workloads of one service under way at once in a PARALLEL release; 0: DefaultConcurrentWorkloads.
	MaxConcurrentWorkloads int `json:"maxConcurrentWorkloads,omitempty"`
	// UnreachableBudgetSeconds is how long a cluster may be out of reach before the task is interrupted.
	UnreachableBudgetSeconds int64 `json:"unreachableBudgetSeconds"`
	// Engine is the engine that runs the task, for its claims; none in tasks of an earlier build.
	Engine workloadops.Engine `json:"engine,omitzero"`
}

// DeployPlanState is what a task has to remember when it continues as new. Nothing of it runs then.
type DeployPlanState struct {
	Machine       plan.Memory          `json:"machine"`
	StartedAt     *time.Time           `json:"startedAt,omitempty"`
	Services      []plan.ServiceStatus `json:"services"`
	Interruptions []plan.Interruption  `json:"interruptions,omitempty"`
}

// ItemOutline is what the task's workflow has to know of an item.
type ItemOutline struct {
	ServiceID  plan.ServiceID `json:"serviceId"`
	Priority   int64          `json:"priority"`
	Deployment plan.Operation `json:"deployment"`
	Method     plan.Method    `json:"method"`
	// RollOut says that Rollouts release the service's workloads.
	RollOut bool `json:"rollOut,omitempty"`
}

// ServiceReleaseInput starts a ServiceRelease workflow.
type ServiceReleaseInput struct {
	Task string `json:"task"`
	Plan string `json:"plan"`
	// Item is the item's number, counted from 1.
	Item                     int         `json:"item"`
	Outline                  ItemOutline `json:"outline"`
	UnreachableBudgetSeconds int64       `json:"unreachableBudgetSeconds"`
	// MaxConcurrentWorkloads is how many workloads a PARALLEL release has under way at once at most; 0: DefaultConcurrentWorkloads.
	MaxConcurrentWorkloads int `json:"maxConcurrentWorkloads,omitempty"`
	// State is how far the release is, in a run that was continued as new; nil at a start.
	State *ServiceReleaseState `json:"state,omitempty"`
	// Engine is that of the task.
	Engine workloadops.Engine `json:"engine,omitzero"`
}

// ServiceReleaseState is what a release of one service has to remember when it continues as new. Nothing is under way then.
type ServiceReleaseState struct {
	Workloads []plan.WorkloadStatus `json:"workloads"`
	// GivenUp are the workloads whose operation was abandoned while interrupted, by their place in Workloads.
	GivenUp []bool `json:"givenUp"`
	// Abandoned says that the task has told it to give up when it is interrupted.
	Abandoned bool      `json:"abandoned,omitempty"`
	StartedAt time.Time `json:"startedAt"`
	// Package is the package that is deployed: what comes after gets the very same bytes.
	Package *source.Fetched `json:"package,omitempty"`
	// Build is the build that is deployed: what comes after gets the very same.
	Build *BuildState `json:"build,omitempty"`
}

// BuildState is a finished build of COMPILE_DEPLOY: what the task shows of it, and what it has yielded.
type BuildState struct {
	Shown plan.BuildStatus `json:"shown"`
	Built build.Built      `json:"built"`
}

// ServiceReleaseResult is how the release of one service ended.
type ServiceReleaseResult struct {
	State     plan.ItemState        `json:"state"`
	Reason    string                `json:"reason"`
	Workloads []plan.WorkloadStatus `json:"workloads"`
	// Abandoned says that the item failed because it was given up while interrupted.
	Abandoned bool `json:"abandoned,omitempty"`
	// Package is the code package that was deployed; absent for other deployments.
	Package *plan.PackageStatus `json:"package,omitempty"`
	// Build is the build of COMPILE_DEPLOY; absent for other deployments.
	Build *plan.BuildStatus `json:"build,omitempty"`
}

// VerbRequest is the payload of every verb, as Update and as Signal. All is optional: empty means "now, by whoever sent it".
type VerbRequest struct {
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Key is the idempotency key: the same key twice is one command. Over HTTP it is the Update's ID.
	Key string `json:"key,omitempty"`
	// Via is the front door: http, cli, console; absent: temporal.
	Via string `json:"via,omitempty"`
}

// TaskVerbRequest is the payload of every verb of a task, as Update and as Signal. All fields are optional.
type TaskVerbRequest struct {
	VerbRequest
	// To is where a stop leaves the rollouts of services that are being released; absent: they go on to their end.
	To rollout.StopTo `json:"to,omitempty"`
}

// VerbResponse is what became of a verb, whatever it was sent to. A refused one is an answer, not an error: it belongs to the record. It is
// small, since each is an event of the history: who wants the whole state asks for it.
type VerbResponse struct {
	Outcome audit.Outcome `json:"outcome"`
	Message string        `json:"message"`
	// State is the task's state, the rollout's phase or the stage of a serving's operation after it.
	State string `json:"state"`
	// Seq is how many entries the history had then.
	Seq int64 `json:"seq"`
}

// ItemSignal is what a ServiceRelease tells its task without ending: the signal SignalItem.
type ItemSignal struct {
	Item int `json:"item"`
	// Interrupted says whether system trouble holds the item up; Reason says which.
	Interrupted bool   `json:"interrupted"`
	Reason      string `json:"reason"`
}

// The signals between a task and its items.
const (
	SignalItem        = "slipway.item"
	SignalItemResume  = "resume"
	SignalItemAbandon = "stop"
	// SignalItemStopRollouts carries a RolloutVerbRequest, whose To says where the service's rollouts end.
	SignalItemStopRollouts = "stop-rollouts"
)

// PreflightInput starts a Preflight workflow: checks, without a write, on each party's queue.
type PreflightInput struct {
	Parties []PreflightParty `json:"parties"`
	// Rollout is one rollout to check; its outcome comes after those of Parties.
	Rollout *RolloutPreflight `json:"rollout,omitempty"`
	// Rollouts are those of a plan's services; their outcomes come last, in this order.
	Rollouts []RolloutPreflight `json:"rollouts,omitempty"`
	// Diff asks besides what each of the parties' requests would change.
	Diff bool `json:"diff,omitempty"`
}

// PreflightParty is what is checked on one party's queue.
type PreflightParty struct {
	Party    string                `json:"party"`
	Queue    string                `json:"queue"`
	Requests []workloadops.Request `json:"requests"`
}

// PreflightOutcome is what the check found, one for each party of the input, in its order.
type PreflightOutcome struct {
	Party string `json:"party"`
	// Unreachable says why the party could not be asked; "" when it answered.
	Unreachable string                `json:"unreachable,omitempty"`
	Refusals    []workloadops.Refusal `json:"refusals,omitempty"`
	Warnings    []workloadops.Refusal `json:"warnings,omitempty"`
	// Diffs are what the party's requests would change, in their order; only where that was asked.
	Diffs []workloadops.Diff `json:"diffs,omitempty"`
	// Rollout is what the check of a rollout found.
	Rollout *rollout.PreflightResult `json:"rollout,omitempty"`
}

// RolloutInput starts a Rollout workflow.
type RolloutInput struct {
	machine.Asked
	// Queue is the party's queue.
	Queue string `json:"queue"`
	// State is that of a run that was continued as new; nil at a start.
	State *machine.State `json:"state,omitempty"`
	// Newer is the release that takes this one's place when it is over; only in a run that was continued as new.
	Newer *RolloutInput `json:"newer,omitempty"`
	// Engine is the engine that runs the release, for its claim; none in releases of an earlier build.
	Engine workloadops.Engine `json:"engine,omitzero"`
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
	// Generation and ObjectState are what of a Rollout object the verb was read from: see rollout.Command.
	Generation  int64 `json:"generation,omitempty"`
	ObjectState int64 `json:"objectState,omitempty"`
}

// SupersedeRequest is the payload of the Update `supersede`: a newer release of the same workload takes the place of this one.
// This one goes back to stable first, is recorded as over, and the workflow continues as the newer one.
type SupersedeRequest struct {
	VerbRequest
	Input RolloutInput `json:"input"`
}

// ReplanRequest is the payload of the Update `replan`: the Rollout object that asked for the release has another strategy now.
type ReplanRequest struct {
	RolloutVerbRequest
	Strategy strategy.Strategy `json:"strategy"`
}

// RolloutPreflight is the check of one rollout on its party's queue; PreflightOutcome.Rollout is its result.
type RolloutPreflight struct {
	Party   string                   `json:"party"`
	Queue   string                   `json:"queue"`
	Request rollout.PreflightRequest `json:"request"`
}
