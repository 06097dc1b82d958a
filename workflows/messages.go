// Package workflows holds the durable processes of Slipway, one file per Temporal workflow type. Workflow code makes no
// decisions of its own: decisions are in release/, side effects in activities, which workflows call by name and message
// type.
package workflows

import (
	"time"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/origin"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/window"
	"slipway.io/slipway/release/workload"
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
	TypeServingStatuses = serving.TypeStatuses
	// TypeServingCheck makes a party's worker that has just started check its expected Deployments.
	TypeServingCheck = serving.TypeCheck
)

// The error types of a DeployPlan whose task failed and of a Rollout that closes in phase Failed: Temporal shows them
// as failed.
const (
	TypeTaskFailed    = "TaskFailed"
	TypeRolloutFailed = "RolloutFailed"
)

// TypeNotStarted is the error type of a workflow that the engine has not started: it closes at once and writes nothing.
const TypeNotStarted = "NotStartedByEngine"

// The SlipwayKind of each. SlipwayState is a task's state, a rollout's phase or a serving operation's stage;
// SlipwayName is the name or ID.
const (
	KindTask    = "task"
	KindRollout = "rollout"
	KindServing = "serving"
)

// QueryState returns the whole status: plan.Task, plan.ServiceStatus, RolloutState or ServingState.
const QueryState = workload.QueryState

// Messages are only ever extended: recorded histories contain them.

// DeployPlanInput starts a DeployPlan workflow. The snapshot itself is in the task's ReleaseRecord; history carries an
// outline only.
type DeployPlanInput struct {
	Task      string    `json:"task"`
	Plan      string    `json:"plan"`
	Comment   string    `json:"comment,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	// Actor and Reason are who executed the plan and why, as sent by the caller.
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Via is the interface that was used: http, cli, console, temporal.
	Via string `json:"via,omitempty"`
	// RerunOf is the task that this one repeats, ReverseOf the one whose changes it reverts; "" for none.
	RerunOf   string `json:"rerunOf,omitempty"`
	ReverseOf string `json:"reverseOf,omitempty"`
	// Items are the plan's items in the document's order.
	Items []ItemOutline `json:"items"`
	// Times are the release windows: an item begins only when all of them allow it. None: at any time.
	Times []window.Times `json:"times,omitempty"`
	// State is the progress of a task that continued as new; nil at the start.
	State *DeployPlanState `json:"state,omitempty"`
	// MaxConcurrent is the maximum number of services released at once.
	MaxConcurrent int `json:"maxConcurrent"`
	// MaxConcurrentWorkloads bounds the workloads of one service in progress at once in a PARALLEL release; 0:
	// DefaultConcurrentWorkloads.
	MaxConcurrentWorkloads int `json:"maxConcurrentWorkloads,omitempty"`
	// UnreachableBudgetSeconds is how long a cluster may be unreachable before the task is interrupted.
	UnreachableBudgetSeconds int64 `json:"unreachableBudgetSeconds"`
	// Engine is the engine that runs the task, for its claims.
	Engine workload.Engine `json:"engine,omitzero"`
}

// Digest identifies the input with which a task is started: its record has it. A run that continued as new has the
// same.
func (in DeployPlanInput) Digest() string {
	in.State = nil
	return origin.Digest(in)
}

// DeployPlanState is the state of a task that continues as new. No item runs then.
type DeployPlanState struct {
	Machine       plan.Memory          `json:"machine"`
	StartedAt     *time.Time           `json:"startedAt,omitempty"`
	Services      []plan.ServiceStatus `json:"services"`
	Interruptions []plan.Interruption  `json:"interruptions,omitempty"`
}

// ItemOutline is what the task's workflow needs of an item.
type ItemOutline struct {
	ServiceID  plan.ServiceID `json:"serviceId"`
	Priority   int64          `json:"priority"`
	Deployment plan.Operation `json:"deployment"`
	Method     plan.Method    `json:"method"`
	// RollOut is true if Rollouts release the service's workloads.
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
	// MaxConcurrentWorkloads is the maximum number of workloads that a PARALLEL release has in progress at once; 0:
	// DefaultConcurrentWorkloads.
	MaxConcurrentWorkloads int `json:"maxConcurrentWorkloads,omitempty"`
	// State is the progress of a release that continued as new; nil at the start.
	State *ServiceReleaseState `json:"state,omitempty"`
	// Engine is the task's engine.
	Engine workload.Engine `json:"engine,omitzero"`
}

// ServiceReleaseState is the state of a service's release that continues as new. No workload is in progress then.
type ServiceReleaseState struct {
	Workloads []plan.WorkloadStatus `json:"workloads"`
	// GivenUp marks the workloads whose operation was abandoned while interrupted, by index in Workloads.
	GivenUp []bool `json:"givenUp"`
	// Abandoned is true if the task sent SignalItemAbandon: an interruption ends the item.
	Abandoned bool      `json:"abandoned,omitempty"`
	StartedAt time.Time `json:"startedAt"`
	// Package is the deployed package; all further workloads get the same bytes.
	Package *source.Fetched `json:"package,omitempty"`
	// Build is the deployed build; all further workloads get the same one.
	Build *BuildState `json:"build,omitempty"`
}

// BuildState is a finished build of COMPILE_DEPLOY: what the task shows of it, and its result.
type BuildState struct {
	Shown plan.BuildStatus `json:"shown"`
	Built build.Built      `json:"built"`
}

// ServiceReleaseResult is the outcome of the release of one service.
type ServiceReleaseResult struct {
	State     plan.ItemState        `json:"state"`
	Reason    string                `json:"reason"`
	Workloads []plan.WorkloadStatus `json:"workloads"`
	// Abandoned is true if the item failed because it was given up while interrupted.
	Abandoned bool `json:"abandoned,omitempty"`
	// Package is the code package that was deployed; absent for other deployments.
	Package *plan.PackageStatus `json:"package,omitempty"`
	// Build is the build of COMPILE_DEPLOY; absent for other deployments.
	Build *plan.BuildStatus `json:"build,omitempty"`
}

// VerbRequest is the payload of every verb, as Update and as Signal. All fields are optional.
type VerbRequest struct {
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Key is the idempotency key: two requests with the same key are one command. Over HTTP it is the Update's ID.
	Key string `json:"key,omitempty"`
	// Via is the interface that was used: http, cli, console; absent: temporal.
	Via string `json:"via,omitempty"`
}

// TaskVerbRequest is the payload of every verb of a task, as Update and as Signal. All fields are optional.
type TaskVerbRequest struct {
	VerbRequest
	// To is where a stop leaves the rollouts of services that are being released; absent: they continue to their end.
	To rollout.StopTo `json:"to,omitempty"`
}

// VerbResponse is the outcome of a verb of a task, rollout or serving operation. A refusal is a response rather than an
// error, and is recorded. It is small because each response is a history event; QueryState returns the whole state.
type VerbResponse struct {
	Outcome audit.Outcome `json:"outcome"`
	Message string        `json:"message"`
	// State is the task's state, the rollout's phase or the serving operation's stage after the verb.
	State string `json:"state"`
	// Seq is the number of history entries at that time.
	Seq int64 `json:"seq"`
}

// ItemSignal is what a running ServiceRelease reports to its task: the payload of SignalItem.
type ItemSignal struct {
	Item int `json:"item"`
	// Interrupted is true if system trouble holds up the item; Reason names it.
	Interrupted bool   `json:"interrupted"`
	Reason      string `json:"reason"`
	// Blocked is true if pods of the item are not created or do not start; Reason says why.
	Blocked bool `json:"blocked,omitempty"`
}

// The signals between a task and its items.
const (
	SignalItem        = "slipway.item"
	SignalItemResume  = "resume"
	SignalItemAbandon = "stop"
	// SignalItemStopRollouts carries a RolloutVerbRequest; its To is where the service's rollouts end.
	SignalItemStopRollouts = "stop-rollouts"
)

// PreflightInput starts a Preflight workflow: checks on each party's queue that write nothing.
type PreflightInput struct {
	Parties []PreflightParty `json:"parties"`
	// Rollouts are the rollouts to check; their outcomes follow those of Parties, in this order.
	Rollouts []RolloutPreflight `json:"rollouts,omitempty"`
	// Diff also requests what each of the parties' requests would change.
	Diff bool `json:"diff,omitempty"`
}

// PreflightParty is what is checked on one party's queue.
type PreflightParty struct {
	Party    string              `json:"party"`
	Queue    string              `json:"queue"`
	Requests []operation.Request `json:"requests"`
}

// PreflightOutcome is the result of the checks for one party of the input, in the input's order.
type PreflightOutcome struct {
	Party string `json:"party"`
	// Unreachable is why the party could not be asked; "" if it answered.
	Unreachable string              `json:"unreachable,omitempty"`
	Refusals    []operation.Refusal `json:"refusals,omitempty"`
	Warnings    []operation.Refusal `json:"warnings,omitempty"`
	// Diffs are what the party's requests would change, in their order; only if PreflightInput.Diff is set.
	Diffs []operation.Diff `json:"diffs,omitempty"`
	// Rollout is the result of a rollout's check.
	Rollout *rollout.PreflightResult `json:"rollout,omitempty"`
}

// RolloutInput starts a Rollout workflow.
type RolloutInput struct {
	machine.Request
	// Queue is the party's queue.
	Queue string `json:"queue"`
	// State is the machine's state in a run that continued as new; nil at the start.
	State *machine.State `json:"state,omitempty"`
	// Newer is the release that supersedes this one when it has ended; only in a run that continued as new.
	Newer *RolloutInput `json:"newer,omitempty"`
	// Engine is the engine that runs the release, for its claim.
	Engine workload.Engine `json:"engine,omitzero"`
}

// Digest identifies the input with which a rollout is started: its record has it. A run that continued as new has the
// same.
func (in RolloutInput) Digest() string {
	in.State, in.Newer = nil, nil
	return origin.Digest(in)
}

// RolloutVerbRequest is the payload of every verb of a rollout, as Update and as Signal. All fields are optional.
type RolloutVerbRequest struct {
	VerbRequest
	// Step is the step that the verb is meant for, from 1; 0: the step that waits now.
	Step int `json:"step,omitempty"`
	// Gate is waitingFor.gate as the sender saw it; "" is not checked.
	Gate string `json:"gate,omitempty"`
	// To is where a stop leaves the workload: stable (default), new, frozen.
	To rollout.StopTo `json:"to,omitempty"`
	// ToStep is the target step of a jump, from 1.
	ToStep int `json:"toStep,omitempty"`
	// Generation and ObjectState identify the Rollout object's state that the verb was read from; see rollout.Command.
	Generation  int64 `json:"generation,omitempty"`
	ObjectState int64 `json:"objectState,omitempty"`
	// Refuse is why the controller of Rollout objects does not let the verb be executed; see rollout.Command.
	Refuse string `json:"refuse,omitempty"`
}

// SupersedeRequest is the payload of the Update `supersede`: a newer release of the same workload replaces this one.
// This one first returns to stable and its end is recorded; then the workflow continues as the newer release.
type SupersedeRequest struct {
	VerbRequest
	Input RolloutInput `json:"input"`
}

// ReplanRequest is the payload of the Update `replan`: the strategy of the Rollout object that requested the release
// was edited.
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
