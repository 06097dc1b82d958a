package rollout

import "time"

// ObjectRef is the Rollout object of the home cluster that asks for a release.
type ObjectRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// ActivityPublishRollout writes what a release is like to the object that asked for it: PublishRequest → PublishResult.
const ActivityPublishRollout = "PublishRollout"

// PublishRequest is a release as its object is to show it.
type PublishRequest struct {
	Object ObjectRef `json:"object"`
	View   View      `json:"view"`
}

// View is what an object shows of its release, beside the release's own status.
type View struct {
	Status Status `json:"status"`
	// Ending is where the release is being brought to, "" while it goes through its steps.
	Ending Ending `json:"ending,omitempty"`
	// Stalled is why it waits for a person who has to decide: a failure, or somebody else's edit; "" when it does not.
	Stalled string `json:"stalled,omitempty"`
	// Redeclared says that it waits since the workload declares another pod template than this release's.
	Redeclared bool `json:"redeclared,omitempty"`
	// Superseding says that a newer release takes its place.
	Superseding bool `json:"superseding,omitempty"`
	// Gate is that of the step.
	Gate string `json:"gate"`
	// Template is the digest of the pod template that is released; at the end the one that serves, "" where that is not known. RolledBack is
	// the digest of a template from which the release was taken back by a command.
	Template   string `json:"template"`
	RolledBack string `json:"rolledBack,omitempty"`
	// Generation is the object's as the release has taken it in, Answered the newest of its states that a command was the answer to.
	Generation int64 `json:"generation,omitempty"`
	Answered   int64 `json:"answered,omitempty"`
	// PausedByObject says that it is paused since the object says so: the object alone ends that pause, or a person.
	PausedByObject bool `json:"pausedByObject,omitempty"`
	// Began is when the release began to be.
	Began time.Time `json:"began"`
}

// PublishResult says what became of it.
type PublishResult struct {
	// Pending says that nothing was written, since the object carries a command that the release has not heard yet; Gone that the object is
	// not there any more, or is another of the same name.
	Pending bool `json:"pending,omitempty"`
	Gone    bool `json:"gone,omitempty"`
}

// Shown is the part of a View of which every change is written to the object. Its sentences alone are no reason to write.
type Shown struct {
	Phase                    Phase
	Index, Next              int
	State                    StepState
	Ending                   Ending
	Finalising               string
	Waits                    WaitKind
	Paused, Superseding      bool
	Stalled, Gate            string
	Stable, Canary, Hash     string
	Replicas, Updated, Ready int32
	WorkloadGeneration       int64
	Template, RolledBack     string
	Generation, Answered     int64
}

// Shown is that part of the view.
func (v View) Shown() Shown {
	s := v.Status
	shown := Shown{Phase: s.Phase, Index: s.CurrentStepIndex, Next: s.NextStepIndex, State: s.CurrentStepState, Ending: v.Ending,
		Finalising: s.FinalisingStep, Paused: s.Paused, Superseding: v.Superseding, Stalled: v.Stalled, Gate: v.Gate, Stable: s.StableRevision,
		Canary: s.CanaryRevision, Hash: s.PodTemplateHash, Replicas: s.Replicas, Updated: s.CanaryReplicas, Ready: s.CanaryReadyReplicas,
		WorkloadGeneration: s.ObservedWorkloadGeneration, Template: v.Template, RolledBack: v.RolledBack, Generation: v.Generation,
		Answered: v.Answered}
	if s.WaitingFor != nil {
		shown.Waits = s.WaitingFor.Kind
	}
	return shown
}
