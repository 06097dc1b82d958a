// Package rollout has the types of canary and blue-green releases: the messages between the workflow and a party's
// worker, the status that users read, what is saved on a workload, and the order in which everything borrowed is
// restored. Package strategy has what a user requests, machine decides what comes next, pods how pods are moved, and
// traffic how requests are routed. These packages decide; they do not access the cluster.
package rollout

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout/strategy"
)

// Phase is the state of a rollout as a whole.
type Phase string

// The phases. Healthy, RolledBack and Cancelled are final; Failed waits for an operator, unless nothing had been done
// yet.
const (
	PhaseProgressing Phase = "Progressing"
	PhaseHealthy     Phase = "Healthy"
	PhaseFailed      Phase = "Failed"
	PhaseRolledBack  Phase = "RolledBack"
	PhaseCancelled   Phase = "Cancelled"
)

// Final reports whether a rollout in this phase never changes again. A Failed one may still be retried, rolled back or
// stopped.
func (p Phase) Final() bool { return p == PhaseHealthy || p == PhaseRolledBack || p == PhaseCancelled }

// StepState is the state of the current step, with the names of Kruise Rollouts.
type StepState string

// The states of a step.
const (
	StateBeforeUpgrade  StepState = "BeforeStepUpgrade"
	StateUpgrade        StepState = "StepUpgrade"
	StateTrafficRouting StepState = "StepTrafficRouting"
	StatePaused         StepState = "StepPaused"
	StateReady          StepState = "StepReady"
	StateCompleted      StepState = "Completed"
	// StateRolledBack is the state of the step at which a rollout was reversed, once the stable version serves again.
	StateRolledBack StepState = "RolledBack"
)

// WaitKind is what a rollout waits for.
type WaitKind string

// The kinds of waiting.
const (
	WaitApproval WaitKind = "approval"
	WaitTimer    WaitKind = "timer"
	// WaitWindow: the policy's release windows and freezes hold back the next step.
	WaitWindow  WaitKind = "window"
	WaitPods    WaitKind = "pods"
	WaitTraffic WaitKind = "traffic"
	WaitParty   WaitKind = "party"
	WaitDrift   WaitKind = "drift"
	// WaitResume: it is paused or has failed; a user has to decide how it continues.
	WaitResume WaitKind = "resume"
)

// WaitKinds are all kinds of waiting.
var WaitKinds = []WaitKind{WaitApproval, WaitTimer, WaitWindow, WaitPods, WaitTraffic, WaitParty, WaitDrift, WaitResume}

// WaitingFor is what a rollout waits for, since when, until when, and by which token it is approved.
type WaitingFor struct {
	Kind  WaitKind   `json:"kind"`
	Since time.Time  `json:"since"`
	Until *time.Time `json:"until,omitempty"`
	// Gate identifies release, revision, step and visit. Approve and promote send it back.
	Gate    string `json:"gate,omitempty"`
	Message string `json:"message"`
}

// TrafficStatus is the split that the routes were last asked for.
type TrafficStatus struct {
	CanaryWeight int32            `json:"canaryWeight"`
	StableWeight int32            `json:"stableWeight"`
	Matches      []strategy.Match `json:"matches,omitempty"`
	// LeftOut names the routes that cannot express the step, each with the reason: they send the new version nothing.
	LeftOut []string `json:"leftOut,omitempty"`
}

// StepStatus is one step of the plan and its progress.
type StepStatus struct {
	Index                 int                      `json:"index"`
	Replicas              intstr.IntOrString       `json:"replicas"`
	Traffic               string                   `json:"traffic,omitempty"`
	Matches               []strategy.Match         `json:"matches,omitempty"`
	RequestHeaderModifier *strategy.HeaderModifier `json:"requestHeaderModifier,omitempty"`
	// Pause is "approval", "none" or a duration ("2h0m0s").
	Pause      string     `json:"pause"`
	State      string     `json:"state"`
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
}

// Status is a rollout as the HTTP API returns it.
type Status struct {
	Party       string              `json:"party"`
	Namespace   string              `json:"namespace"`
	Name        string              `json:"name"`
	WorkloadRef catalog.WorkloadRef `json:"workloadRef"`
	Style       strategy.Style      `json:"style"`
	Phase       Phase               `json:"phase"`
	Reason      string              `json:"reason"`
	// Conditions express the same for programs. They are derived when the rollout is read, and not stored.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Steps are counted from 1; NextStepIndex is -1 at the end.
	CurrentStepIndex int          `json:"currentStepIndex"`
	NextStepIndex    int          `json:"nextStepIndex"`
	CurrentStepState StepState    `json:"currentStepState"`
	Steps            []StepStatus `json:"steps"`
	// FinalisingStep is the current move of finalising, "" before.
	FinalisingStep             string `json:"finalisingStep,omitempty"`
	StableRevision             string `json:"stableRevision"`
	CanaryRevision             string `json:"canaryRevision"`
	PodTemplateHash            string `json:"podTemplateHash"`
	RolloutID                  string `json:"rolloutId,omitempty"`
	ObservedWorkloadGeneration int64  `json:"observedWorkloadGeneration,omitempty"`
	// Revision is the release's number in the history of its name, 0 while unknown. Undo is set if it goes back to an
	// earlier one.
	Revision int64          `json:"revision,omitempty"`
	Undo     *strategy.Undo `json:"undo,omitempty"`
	// Images are the new version's images by container, StableImages those of the version that served before. The
	// digests are of their pod templates. Each is set as soon as it is known.
	Images       map[string]string `json:"images,omitempty"`
	StableImages map[string]string `json:"stableImages,omitempty"`
	// Package and StablePackage are the SHA-256 of the code packages of these versions, as a plan has deployed them;
	// "": none.
	Package              string             `json:"package,omitempty"`
	StablePackage        string             `json:"stablePackage,omitempty"`
	TemplateDigest       string             `json:"templateDigest,omitempty"`
	StableTemplateDigest string             `json:"stableTemplateDigest,omitempty"`
	Replicas             int32              `json:"replicas"`
	CanaryReplicas       int32              `json:"canaryReplicas"`
	CanaryReadyReplicas  int32              `json:"canaryReadyReplicas"`
	LastUpdateTime       time.Time          `json:"lastUpdateTime"`
	CreatedAt            time.Time          `json:"createdAt"`
	FinishedAt           *time.Time         `json:"finishedAt,omitempty"`
	Traffic              *TrafficStatus     `json:"traffic,omitempty"`
	WaitingFor           *WaitingFor        `json:"waitingFor,omitempty"`
	History              []audit.Entry      `json:"history"`
	Workflow             *audit.WorkflowRef `json:"workflow,omitempty"`
	// RefusalsDropped is the number of refused commands that History no longer has.
	RefusalsDropped int64 `json:"refusalsDropped,omitempty"`
	// Paused is true if a user or the Rollout object has paused it: nothing new begins until a resume.
	Paused bool `json:"paused,omitempty"`
	// Frozen is true if it ended with its split left in place.
	Frozen bool `json:"frozen,omitempty"`
	// Record is the name of its ReleaseRecord.
	Record string `json:"record,omitempty"`
	// Task is the task of a plan that the rollout belongs to; "": it was started by itself.
	Task string `json:"task,omitempty"`
}

// Packages returns the SHA-256 of the code packages that the rollout has deployed or replaced, sorted.
func (s Status) Packages() []string {
	both := slices.Compact(slices.Sorted(slices.Values([]string{s.Package, s.StablePackage})))
	return slices.DeleteFunc(both, func(sha256 string) bool { return sha256 == "" })
}

// Verb is what a user can ask of a rollout.
type Verb = audit.Verb

// The verbs. VerbSupersede comes from POST /rollouts with supersede: true.
const (
	VerbApprove   Verb = "approve"
	VerbPause     Verb = "pause"
	VerbResume    Verb = "resume"
	VerbStop      Verb = "stop"
	VerbRollback  Verb = "rollback"
	VerbJump      Verb = "jump"
	VerbRetry     Verb = "retry"
	VerbPromote   Verb = "promote"
	VerbSupersede Verb = "supersede"
	// VerbStart is the verb of the history entry that names who started the rollout.
	VerbStart Verb = "start"
	// VerbDetach and VerbReplan come from the Rollout object that requested the release: it was disabled or deleted, or
	// its steps were edited.
	VerbDetach Verb = "detach"
	VerbReplan Verb = "replan"
	// VerbUndo starts a release that goes back to an earlier version, after the end of the last one. It is not a verb
	// of a running release.
	VerbUndo Verb = "undo"
)

// Verbs are the verbs that a user can send, in the order of menus.
var Verbs = []Verb{VerbApprove, VerbPause, VerbResume, VerbStop, VerbRollback, VerbJump, VerbRetry, VerbPromote}

// StopTo is the state in which a stop leaves the workload.
type StopTo string

// The targets of a stop.
const (
	StopToStable StopTo = "stable"
	StopToNew    StopTo = "new"
	StopToFrozen StopTo = "frozen"
)

// StopTos are all targets of a stop.
var StopTos = []StopTo{StopToStable, StopToNew, StopToFrozen}

// Command is a verb with its payload. All fields but Verb are optional: empty means "the step that waits now".
type Command struct {
	Verb   Verb   `json:"verb"`
	Actor  string `json:"actor,omitempty"`
	Via    string `json:"via,omitempty"`
	Reason string `json:"reason,omitempty"`
	Key    string `json:"key,omitempty"`
	Step   int    `json:"step,omitempty"`
	Gate   string `json:"gate,omitempty"`
	To     StopTo `json:"to,omitempty"`
	ToStep int    `json:"toStep,omitempty"`
	// Generation and State are the generation of the Rollout object that the command was read from, and the state of
	// the object that it responds to.
	Generation int64 `json:"generation,omitempty"`
	State      int64 `json:"state,omitempty"`
	// Refuse is why the sender, a controller of Rollout objects, does not let the command be executed: it is refused with
	// this reason. It is answered all the same, so that the object no longer shows it.
	Refuse string `json:"refuse,omitempty"`
}

// Entry returns the command as an entry of the audit log.
func (c Command) Entry(now time.Time) audit.Entry {
	return audit.Entry{At: now, Actor: c.Actor, Via: c.Via, Verb: c.Verb, Step: c.Step, Reason: c.Reason, Key: c.Key}
}

// WorkflowID is the ID of a rollout's workflow: "rollout/<party>/<namespace>/<name>".
func WorkflowID(party, namespace, name string) string {
	if party == "" {
		party = catalog.DefaultParty
	}
	return "rollout/" + party + "/" + namespace + "/" + name
}

// Started is the response to the start of a rollout: its current status, and what is legal in the request but probably
// not meant.
type Started struct {
	Status
	Warnings []string `json:"warnings,omitempty"`
}

// ObjectRef is the Rollout object of the home cluster that requests a release.
type ObjectRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// ActivityPublishRollout writes the progress of a release to the object that requested it. PublishRequest →
// PublishResult.
const ActivityPublishRollout = "PublishRollout"

// PublishRequest is a release as its object has to show it.
type PublishRequest struct {
	Object ObjectRef `json:"object"`
	View   View      `json:"view"`
}

// View is what an object shows of its release, in addition to the release's own status.
type View struct {
	Status Status `json:"status"`
	// Ending is what the release is finalised to, "" while it goes through its steps.
	Ending Ending `json:"ending,omitempty"`
	// Stalled is why the release waits for an operator: a failure, or an edit by another client; "" when it does not.
	Stalled string `json:"stalled,omitempty"`
	// Redeclared is true if the release waits because the workload declares another pod template than this release's.
	Redeclared bool `json:"redeclared,omitempty"`
	// Superseding is true if a newer release replaces it.
	Superseding bool `json:"superseding,omitempty"`
	// Gate is the approval gate of the step.
	Gate string `json:"gate"`
	// Template is the digest of the pod template that is released; at the end, of the one that serves, "" if unknown.
	// RolledBack is the digest of a template that a command rolled back.
	Template   string `json:"template"`
	RolledBack string `json:"rolledBack,omitempty"`
	// Generation is the newest generation of the object that the release has taken in, AnsweredState the newest of its
	// states that a command responded to.
	Generation    int64 `json:"generation,omitempty"`
	AnsweredState int64 `json:"answered,omitempty"`
	// AnsweredCommands are the commands of AnsweredState that the release has answered: a client may have written others
	// into the same state since.
	AnsweredCommands []AnsweredCommand `json:"answeredCommands,omitempty"`
	// PausedByObject is true if the object paused the release: only the object or a user ends that pause.
	PausedByObject bool `json:"pausedByObject,omitempty"`
	// CreatedAt is when the release was requested.
	CreatedAt time.Time `json:"began"`
}

// AnsweredCommand identifies a command among those that one state of an object can carry.
type AnsweredCommand struct {
	Verb   Verb `json:"verb"`
	ToStep int  `json:"toStep,omitempty"`
}

// PublishResult is the outcome of a write to the object.
type PublishResult struct {
	// Pending is true if nothing was written because the object carries a command that the release has not received
	// yet. ObjectDeleted is true if the object was deleted, or replaced by another of the same name.
	Pending       bool `json:"pending,omitempty"`
	ObjectDeleted bool `json:"gone,omitempty"`
}

// Shown returns the part of the view whose every change is written to the object. A change of its sentences alone is
// not.
func (v View) Shown() View {
	s := v.Status
	v.Status = Status{Phase: s.Phase, CurrentStepIndex: s.CurrentStepIndex, NextStepIndex: s.NextStepIndex,
		CurrentStepState: s.CurrentStepState, FinalisingStep: s.FinalisingStep, Paused: s.Paused,
		StableRevision: s.StableRevision, CanaryRevision: s.CanaryRevision, PodTemplateHash: s.PodTemplateHash,
		Replicas: s.Replicas, CanaryReplicas: s.CanaryReplicas, CanaryReadyReplicas: s.CanaryReadyReplicas,
		ObservedWorkloadGeneration: s.ObservedWorkloadGeneration}
	if s.WaitingFor != nil {
		v.Status.WaitingFor = &WaitingFor{Kind: s.WaitingFor.Kind}
	}
	v.Redeclared, v.PausedByObject, v.CreatedAt = false, false, time.Time{}
	return v
}

// The centre's activities for the rollouts of a plan's task, which the task's own workflow starts.
const (
	// ActivityLastHealthy reads which version the newest Healthy release of a name has left on its workload.
	// strategy.Spec → *strategy.Revision, null if none is on record.
	ActivityLastHealthy = "home.LastHealthy"
	// ActivityRecordRollout writes the record of a rollout that begins. RecordRequest → Recorded.
	ActivityRecordRollout = "home.RecordRollout"
	// ActivityWithdrawRollout deletes the record of a rollout that was not started after all. WithdrawRequest →
	// nothing.
	ActivityWithdrawRollout = "home.WithdrawRollout"
)

// RecordRequest is a rollout of a task: the one of item Item, counted from 1.
type RecordRequest struct {
	Task string        `json:"task"`
	Item int           `json:"item"`
	Spec strategy.Spec `json:"spec"`
}

// Recorded is what the record contains in addition to the spec.
type Recorded struct {
	Record    string    `json:"record"`
	CreatedAt time.Time `json:"createdAt"`
	// Revision is the release's number in the history of its name.
	Revision int64 `json:"revision"`
	// Actor, Reason and Via are those of the task.
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
	Via    string `json:"via,omitempty"`
}

// WithdrawRequest names a record.
type WithdrawRequest struct {
	Record string `json:"record"`
}
