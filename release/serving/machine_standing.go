package serving

import "time"

// Standing is how a party stands in an operation.
type Standing struct {
	// Does is what the party does now, or has done: "is brought to it", "runs it".
	Does string
	// Trouble is why it does not come to that; "" when nothing is in the way.
	Trouble string
	// Away: its worker is silent. Lost: its worker cannot reach its cluster.
	Away, Lost bool
	// Since is since when this operation waits for a party that is away or lost, Until how long it does so; the zero time: as long as it takes.
	Since, Until time.Time
}

// Done says that nothing is left to do in the party.
func (s Standing) Done() bool {
	return s.Does == textRuns || s.Does == textBack || s.Does == textRemoved
}

// What a party that has nothing to do stands at.
const (
	textRuns    = "runs it"
	textBack    = "is back on the version of before"
	textRemoved = "has removed it"
	textCan     = "can run it"
	textCannot  = "cannot run it"
	textTurn    = "waits for its turn"
)

// Standing is how the party at that place stands.
func (m *Machine) Standing(party int) Standing {
	p, step := m.parties[party], m.Wanted(party)
	s := Standing{Does: stepText[step], Trouble: p.failed}
	if step == StepNone {
		s.Does = p.rests()
	}
	until, ends := m.waitsUntil(party)
	switch {
	case step == StepNone && !ends:
		return s
	case p.away != "":
		s.Away, s.Trouble, s.Since, s.Until = true, p.away, latest(m.began, p.since), until
	case p.lost != "":
		s.Lost, s.Trouble, s.Since = true, p.lost, p.lostSince
	case p.owing != "":
		s.Trouble = p.owing
	}
	return s
}

// rests is what a party stands at that has nothing to do now.
func (p partyState) rests() string {
	switch {
	case p.removed:
		return textRemoved
	case p.back:
		return textBack
	case p.failed != "":
		return textCannot
	case p.applied:
		return textRuns
	case p.prepared:
		return textCan
	}
	return textTurn
}
