package serving

import "time"

// CreatePhase is how far a StepCreate got before it ended.
type CreatePhase string

const (
	// CreateUnknown: not reported, because the worker died or the step was stopped. The parties may have been changed.
	CreateUnknown CreatePhase = ""
	// CreateChecked: nothing was written in any party. The parties' outcomes are whether they can run the version.
	CreateChecked CreatePhase = "asked"
	// CreateApplied: all parties can run the version, and it was applied to all. Their outcomes are whether they run
	// it.
	CreateApplied CreatePhase = "begun"
)

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

// EndSingleStep ends the single step, which got as far as phase, and returns which step of each party has ended with
// it. From now on each party takes its steps separately. If nothing was written, or the phase is unknown, the parties
// are checked first.
func (m *Machine) EndSingleStep(through CreatePhase) (ended Step) {
	ended = StepPrepare
	if through == CreateApplied {
		ended = StepApply
	}
	if !m.s.SingleStep || m.Finished() {
		return ended
	}
	m.s.SingleStep, m.s.SingleStepEnded, m.s.CreateUncertain = false, true, through == CreateUnknown
	for i := range m.s.Parties {
		p := &m.s.Parties[i]
		p.Prepared, p.Begun = through == CreateApplied, through == CreateApplied
	}
	if through != CreateApplied {
		m.s.Stage, m.s.Committed = StagePrepare, time.Time{}
	}
	return ended
}
