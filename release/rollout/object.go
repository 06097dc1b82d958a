package rollout

import (
	"time"

	"slipway.io/slipway/release/rollout/strategy"
)

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
	// PausedByObject is true if the object paused the release: only the object or a user ends that pause.
	PausedByObject bool `json:"pausedByObject,omitempty"`
	// CreatedAt is when the release was requested.
	CreatedAt time.Time `json:"began"`
}

// PublishResult is the outcome of a write to the object.
type PublishResult struct {
	// Pending is true if nothing was written because the object carries a command that the release has not received
	// yet. ObjectDeleted is true if the object was deleted, or replaced by another of the same name.
	Pending       bool `json:"pending,omitempty"`
	ObjectDeleted bool `json:"gone,omitempty"`
}

// Shown is the part of a View whose every change is written to the object. A change of its sentences alone is not.
type Shown struct {
	Phase                     Phase
	Index, Next               int
	State                     StepState
	Ending                    Ending
	Finalising                string
	WaitKind                  WaitKind
	Paused, Superseding       bool
	Stalled, Gate             string
	Stable, Canary, Hash      string
	Replicas, Updated, Ready  int32
	WorkloadGeneration        int64
	Template, RolledBack      string
	Generation, AnsweredState int64
}

// Shown returns that part of the view.
func (v View) Shown() Shown {
	s := v.Status
	shown := Shown{Phase: s.Phase, Index: s.CurrentStepIndex, Next: s.NextStepIndex, State: s.CurrentStepState,
		Ending:     v.Ending,
		Finalising: s.FinalisingStep, Paused: s.Paused, Superseding: v.Superseding, Stalled: v.Stalled, Gate: v.Gate,
		Stable: s.StableRevision,
		Canary: s.CanaryRevision, Hash: s.PodTemplateHash, Replicas: s.Replicas, Updated: s.CanaryReplicas,
		Ready:              s.CanaryReadyReplicas,
		WorkloadGeneration: s.ObservedWorkloadGeneration, Template: v.Template, RolledBack: v.RolledBack,
		Generation:    v.Generation,
		AnsweredState: v.AnsweredState}
	if s.WaitingFor != nil {
		shown.WaitKind = s.WaitingFor.Kind
	}
	return shown
}

// The centre's activities for the rollouts of a plan's task, which the task's own workflow starts.
const (
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
