package serving

import (
	"time"

	"slipway.io/slipway/release/audit"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// ReleaseState is the state of an operation on a serving, or how it ended.
type ReleaseState string

// The states; all except StateProgressing are final.
const (
	StateProgressing ReleaseState = "Progressing"
	// StateSucceeded: every party reached the requested state.
	StateSucceeded ReleaseState = "Succeeded"
	// StateRolledBack: the operation failed or was stopped, and every party runs the previous version.
	StateRolledBack ReleaseState = "RolledBack"
	StateFailed     ReleaseState = "Failed"
	// StateSuperseded: the operation gave way to a newer one, which continued from the current state of the parties.
	StateSuperseded ReleaseState = "Superseded"
)

// maxRecorded is the maximum number of commands in a record: they are transferred in one event, which Temporal limits
// to 2 MiB.
const maxRecorded = 100

// ReleaseRequest is the snapshot in an operation's record: the workflow run that began it, and its input.
type ReleaseRequest struct {
	WorkflowID string    `json:"workflowId"`
	RunID      string    `json:"runId"`
	StartedAt  time.Time `json:"startedAt"`
	// Input has no Previous: that is the Target of an earlier record, identified by its digest.
	Input Input `json:"input"`
}

// NewReleaseRequest returns the snapshot for the record of an operation.
func NewReleaseRequest(in Input, op kuscia.Operation, started time.Time) ReleaseRequest {
	in.Previous, in.Continued = nil, nil
	return ReleaseRequest{WorkflowID: op.WorkflowID, RunID: op.RunID,
		StartedAt: started.UTC().Truncate(time.Microsecond), Input: in}
}

// operationsPerGeneration is the assumed maximum number of operations for one generation: usually there is one, unless
// users request it again.
const operationsPerGeneration = 10

// BelowRecordLimit reports whether a serving cannot yet have more operations than the keep records to retain, so that
// no record needs to be pruned. Finding out otherwise makes the API server scan the records of all subjects. Records
// left behind by an earlier serving of the same name are pruned with the next deletion.
func BelowRecordLimit(in Input, keep int) bool {
	applies := in.Kind == KindCreate || in.Kind == KindUpdate
	return applies && in.Generation > 0 && in.Generation <= int64(keep/operationsPerGeneration)
}

// Ending is how an operation ended.
type Ending struct {
	State   ReleaseState `json:"state"`
	Reason  string       `json:"reason,omitempty"`
	Message string       `json:"message"`
	At      time.Time    `json:"at"`
	// History lists the commands of users, oldest first; only the newest are kept.
	History []kuscia.AuditEntry `json:"history,omitempty"`
}

// Ending returns how the operation ended, at that time.
func (m *Machine) Ending(now time.Time) Ending {
	end := Ending{State: StateFailed, Reason: m.s.Reason, Message: m.Message(), At: now.UTC(),
		History: newestEntries(m.History(), maxRecorded)}
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

// Release is one operation on a serving in its history: its request, and its state or how it ended.
type Release struct {
	ID         string       `json:"id"`
	Kind       string       `json:"kind"`
	Generation int64        `json:"generation"`
	State      ReleaseState `json:"state"`
	// Reason is one word for the cause of a failure, "" if there is none. Message describes what the operation does or
	// how it ended.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Version and Previous are the digests of the requested version and of the version that served before; "" if there
	// is none.
	Version  string         `json:"version,omitempty"`
	Previous string         `json:"previous,omitempty"`
	Parties  []ReleaseParty `json:"parties"`
	Policy   Policy         `json:"policy"`
	// StartedAt is when its workflow began, FinishedAt when it ended; nil while it is running.
	StartedAt  time.Time          `json:"startedAt"`
	FinishedAt *time.Time         `json:"finishedAt,omitempty"`
	WaitingFor *kuscia.WaitingFor `json:"waitingFor,omitempty"`
	// History lists the commands of users, oldest first; only the newest are kept.
	History  []kuscia.AuditEntry `json:"history"`
	Workflow *audit.WorkflowRef  `json:"workflow,omitempty"`
	// Record is the name of its ReleaseRecord.
	Record string `json:"record"`
}

// ReleaseParty is a party of an operation and what it was requested to run.
type ReleaseParty struct {
	Domain string `json:"domain"`
	Role   string `json:"role,omitempty"`
	// AppImage is the name of the requested AppImage, Image its image at that time; both are "" for a deletion.
	AppImage string `json:"appImage,omitempty"`
	Image    string `json:"image,omitempty"`
}

// Release returns the release as requested, with no known progress yet.
func (a ReleaseRequest) Release() Release {
	in := a.Input
	r := Release{ID: in.ID, Kind: in.Kind, Generation: in.Generation, State: StateProgressing, Message: "it has begun",
		Version: in.TargetDigest, Previous: in.PreviousDigest, Parties: make([]ReleaseParty, len(in.Parties)),
		Policy:    in.Policy.withDefaults(),
		StartedAt: a.StartedAt, History: []kuscia.AuditEntry{},
		Workflow: &audit.WorkflowRef{ID: a.WorkflowID, RunID: a.RunID}}
	if in.Cause != "" {
		r.Message += ", to restore what other clients changed: " + in.Cause
	}
	version, err := Unpack(in.Target)
	for i, p := range in.Parties {
		r.Parties[i] = ReleaseParty{Domain: p.Domain, Role: p.Role}
		// a deletion requests no version
		if place, has := version.PartyIndex(p.Domain, p.Deployment); has && err == nil {
			name := version.Spec.Parties[place].AppImageRef
			image := version.AppImages[name].Image
			r.Parties[i].AppImage, r.Parties[i].Image = name, image.Name+":"+image.Tag
		}
	}
	return r
}

// Ended returns the release with its ending.
func (r Release) Ended(end Ending) Release {
	r.State, r.Reason, r.Message, r.FinishedAt, r.WaitingFor = end.State, end.Reason, end.Message, &end.At, nil
	if end.History != nil {
		r.History = end.History
	}
	return r
}

// Includes reports whether a finished release contains everything of an ending. The first ending is kept, unless a
// command was received just before the workflow closed.
func (r Release) Includes(end Ending) bool { return len(end.History) <= len(r.History) }
