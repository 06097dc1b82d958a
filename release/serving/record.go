package serving

import (
	"time"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/plan"
)

// ReleaseState is how far an operation on a serving is, or how it ended.
type ReleaseState string

// All but StateProgressing are final.
const (
	StateProgressing ReleaseState = "Progressing"
	// StateSucceeded: every party came to what was asked.
	StateSucceeded ReleaseState = "Succeeded"
	// StateRolledBack: it failed or was stopped, and every party runs the version of before.
	StateRolledBack ReleaseState = "RolledBack"
	StateFailed     ReleaseState = "Failed"
	// StateSuperseded: it gave way to a newer operation, which went on from where the parties were.
	StateSuperseded ReleaseState = "Superseded"
)

// maxRecorded is how many decisions a record keeps: they travel to it in one event, which Temporal bounds to 2 MiB.
const maxRecorded = 100

// Asked is the snapshot of an operation's record: with which run of which workflow it began, and what it was asked.
type Asked struct {
	WorkflowID string    `json:"workflowId"`
	RunID      string    `json:"runId"`
	StartedAt  time.Time `json:"startedAt"`
	// Input has no Previous: that is the Target of an earlier record, and known by its digest.
	Input Input `json:"input"`
}

// NewAsked is what an operation was asked.
func NewAsked(in Input, op kuscia.Operation, started time.Time) Asked {
	in.Previous, in.Continued = nil, nil
	return Asked{WorkflowID: op.WorkflowID, RunID: op.RunID, StartedAt: started.UTC().Truncate(time.Microsecond), Input: in}
}

// perGeneration is how many operations there are of one spec at most: it is brought about once, but for when people ask for it again.
const perGeneration = 10

// FewOperations says that a serving cannot have had so many operations yet that one of its keep records has to go: to find which, an API server looks at the
// records of all subjects. An ID that is used once more has left its earlier records behind; those go with the next deletion.
func FewOperations(in Input, keep int) bool {
	brings := in.Kind == KindCreate || in.Kind == KindUpdate
	return brings && in.Generation > 0 && in.Generation <= int64(keep/perGeneration)
}

// Ending is how an operation ended.
type Ending struct {
	State   ReleaseState `json:"state"`
	Reason  string       `json:"reason,omitempty"`
	Message string       `json:"message"`
	At      time.Time    `json:"at"`
	// History is what people have sent, oldest first; of many the newest.
	History []kuscia.AuditEntry `json:"history,omitempty"`
}

// Ending is how the operation ended, at that time.
func (m *Machine) Ending(now time.Time) Ending {
	end := Ending{State: StateFailed, Reason: m.s.Reason, Message: m.Message(), At: now.UTC(), History: last(m.History(), maxRecorded)}
	switch {
	case m.Superseded():
		end.State, end.Reason = StateSuperseded, ""
	case m.s.Reason == ReasonUpdateRolledBack:
		end.State = StateRolledBack
	case m.s.Reason == "":
		end.State = StateSucceeded
	}
	return end
}

// Release is one operation on a serving in its history: what it was asked, and how it is or ended.
type Release struct {
	ID         string       `json:"id"`
	Kind       string       `json:"kind"`
	Generation int64        `json:"generation"`
	State      ReleaseState `json:"state"`
	// Reason is one word for why it failed, "" when it did not. Message is a sentence on what it does or how it ended.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Version and Previous are the digests of what was asked, and of what served before; "" when there is none.
	Version  string         `json:"version,omitempty"`
	Previous string         `json:"previous,omitempty"`
	Parties  []ReleaseParty `json:"parties"`
	Policy   Policy         `json:"policy"`
	// StartedAt is when its workflow began, FinishedAt when it was over; nil while it is not.
	StartedAt  time.Time          `json:"startedAt"`
	FinishedAt *time.Time         `json:"finishedAt,omitempty"`
	WaitingFor *kuscia.WaitingFor `json:"waitingFor,omitempty"`
	// History is what people have sent to it, oldest first; of many the newest.
	History  []kuscia.AuditEntry `json:"history"`
	Workflow *plan.WorkflowRef   `json:"workflow,omitempty"`
	// Record is the name of its ReleaseRecord.
	Record string `json:"record"`
}

// ReleaseParty is a party of an operation and what it was asked to run.
type ReleaseParty struct {
	Domain string `json:"domain"`
	Role   string `json:"role,omitempty"`
	// AppImage is the name of the AppImage that was asked, Image the image of it at that time; both "" for a deletion.
	AppImage string `json:"appImage,omitempty"`
	Image    string `json:"image,omitempty"`
}

// Release is what was asked, of which nothing is known yet but that it was begun.
func (a Asked) Release() Release {
	in := a.Input
	r := Release{ID: in.ID, Kind: in.Kind, Generation: in.Generation, State: StateProgressing, Message: "it has begun",
		Version: in.TargetDigest, Previous: in.PreviousDigest, Parties: make([]ReleaseParty, len(in.Parties)), Policy: in.Policy.withDefaults(),
		StartedAt: a.StartedAt, History: []kuscia.AuditEntry{}, Workflow: &plan.WorkflowRef{ID: a.WorkflowID, RunID: a.RunID}}
	if in.Cause != "" {
		r.Message += ", to put back what others have changed: " + in.Cause
	}
	version, err := Unpack(in.Target)
	for i, p := range in.Parties {
		r.Parties[i] = ReleaseParty{Domain: p.Domain, Role: p.Role}
		if place, has := version.Place(p.Domain, p.Deployment); has && err == nil { // a deletion asks for no version
			name := version.Spec.Parties[place].AppImageRef
			image := version.AppImages[name].Image
			r.Parties[i].AppImage, r.Parties[i].Image = name, image.Name+":"+image.Tag
		}
	}
	return r
}

// Ended is the release as it ended.
func (r Release) Ended(end Ending) Release {
	r.State, r.Reason, r.Message, r.FinishedAt, r.WaitingFor = end.State, end.Reason, end.Message, &end.At, nil
	if end.History != nil {
		r.History = end.History
	}
	return r
}

// Knows says that a finished release has all that an ending says: the first one stays, unless something was sent just before the workflow
// closed.
func (r Release) Knows(end Ending) bool { return len(end.History) <= len(r.History) }
