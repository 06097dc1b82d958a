package serving

import (
	"cmp"
	"slices"
	"time"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/phrase"
)

// MaxGroup is the maximum number of parties that one activity handles together.
const MaxGroup = 16

// IsOneGroup reports whether one activity can handle all parties of an operation: there are not too many, and they
// share one queue.
func (in Input) IsOneGroup() bool {
	return len(in.Parties) <= MaxGroup && !slices.ContainsFunc(in.Parties, func(p PartyTarget) bool {
		return p.Queue != in.Parties[0].Queue
	})
}

// GroupRequest is one step of an operation in parties of one queue, which one activity handles together.
type GroupRequest struct {
	Parties []PartyRequest `json:"parties"`
}

// GroupResult is how a step has ended in each party, in the order of the request.
type GroupResult struct {
	Parties []PartyOutcome `json:"parties"`
	// Through is the step that the outcomes of a StepCreate belong to: StepPrepare if nothing was written in any party,
	// StepApply if all can run the version and it was applied to all. It is StepNone, and parties may have been changed,
	// if the worker died or the step was stopped.
	Through Step `json:"through,omitempty"`
}

// PartyOutcome is how the step has ended in one party: it is done, has failed or is unfinished.
type PartyOutcome struct {
	Done bool `json:"done,omitempty"`
	// Snapshot is the state of the party after a version was applied, if its worker knows everything that belongs to
	// it.
	Snapshot *DeploymentSnapshot `json:"seen,omitempty"`
	// Kind and Message are a final failure.
	Kind    failure.Kind `json:"kind,omitempty"`
	Message string       `json:"message,omitempty"`
	// Unfinished: the results of the other parties could not wait for this one, which has used SpentSeconds of its
	// deadline. It continues in another activity.
	Unfinished   bool  `json:"unfinished,omitempty"`
	SpentSeconds int64 `json:"spentSeconds,omitempty"`
}

// maxSummaryNames is the maximum number of parties that a summary names: Temporal accepts summaries of at most 400
// bytes by default (limit.userMetadataSummarySize), and fails a workflow task with a longer one.
const maxSummaryNames = 2

// SummaryNames returns the names of parties for a summary: "alice, bob and 3 more".
func SummaryNames(parties []PartyTarget) string {
	return phrase.List(phrase.Each(parties, PartyTarget.Name), maxSummaryNames)
}

// UseSingleStep lets one step (StepCreate) check all parties of a creation and apply the version to them, which halves
// the cost in Temporal compared with two steps. It applies only to a creation that needs no waiting in between: every
// party is reachable, none has been checked yet, and the operation is not paused. Otherwise nothing changes.
func (m *Machine) UseSingleStep(now time.Time) {
	if m.s.SingleStepEnded || m.in.Kind != KindCreate || m.s.Stage != StagePrepare || m.s.Paused != nil ||
		m.s.Inherited || !m.all(func(p PartyState) bool { return p == PartyState{} }) {
		return
	}
	m.s.SingleStep, m.s.Stage, m.s.Committed = true, StageCommit, now
	m.begin(now)
}

// EndSingleStep ends the single step, which got as far as through (GroupResult.Through), and returns which step of each
// party has ended with it. From now on each party takes its steps separately. If nothing was written, or through is
// unknown, the parties are checked first.
func (m *Machine) EndSingleStep(through Step) (ended Step) {
	if m.s.SingleStep && !m.Finished() {
		applied := through == StepApply
		m.s.SingleStep, m.s.SingleStepEnded, m.s.CreateUncertain = false, true, through == StepNone
		for i := range m.s.Parties {
			m.s.Parties[i].Prepared, m.s.Parties[i].Begun = applied, applied
		}
		if !applied {
			m.s.Stage, m.s.Committed = StagePrepare, time.Time{}
		}
	}
	return cmp.Or(through, StepPrepare)
}
