package serving

import "time"

// Through is how far a StepCreate has come when it ends.
type Through string

const (
	// ThroughUnknown: nobody says, since its worker has died, or it was stopped. The parties may have been changed.
	ThroughUnknown Through = ""
	// ThroughAsked: nothing was written in any party. What the parties answer is whether they can run the version.
	ThroughAsked Through = "asked"
	// ThroughBegun: all can, and were begun with. What they answer is whether they run it.
	ThroughBegun Through = "begun"
)

// AtOnce has the parties of a creation be asked and brought to the version by one step (StepCreate), which costs Temporal half as much as two. It is for a creation
// that nobody waits for in between: every party is there, none has been asked, and nobody has paused it. Otherwise nothing changes.
func (m *Machine) AtOnce(now time.Time) {
	if m.s.Apart || m.in.Kind != KindCreate || m.s.Stage != StagePrepare || m.s.Paused != nil || m.s.Inherited || !m.all(func(p PartyState) bool { return p == PartyState{} }) {
		return
	}
	m.s.AtOnce, m.s.Stage, m.s.Committed = true, StageCommit, now
	m.begin(now)
}

// Apart is told how far a StepCreate has come, and says which step of each party has ended with it. From now on each takes its steps for itself. While nothing was
// written, or nobody knows, the parties are asked first.
func (m *Machine) Apart(through Through) (ended Step) {
	ended = StepPrepare
	if through == ThroughBegun {
		ended = StepApply
	}
	if !m.s.AtOnce || m.Over() {
		return ended
	}
	m.s.AtOnce, m.s.Apart, m.s.Unsure = false, true, through == ThroughUnknown
	for i := range m.s.Parties {
		p := &m.s.Parties[i]
		p.Prepared, p.Begun = through == ThroughBegun, through == ThroughBegun
	}
	if through != ThroughBegun {
		m.s.Stage, m.s.Committed = StagePrepare, time.Time{}
	}
	return ended
}
