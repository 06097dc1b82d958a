package serving

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.io/slipway/release/audit"
)

// Step is what a party is asked to do.
type Step string

// The steps.
const (
	StepNone    Step = ""
	StepPrepare Step = "prepare"
	StepApply   Step = "apply"
	StepBack    Step = "back"
	StepRemove  Step = "remove"
)

// Owed says that a step is tried again until it is done: nothing else can take its place.
func (s Step) Owed() bool { return s == StepBack || s == StepRemove }

// Stage is how far an operation is.
type Stage string

// The stages.
const (
	// StagePrepare: every party is asked whether it could; nothing is written.
	StagePrepare Stage = "prepare"
	// StageCommit: the parties are brought to the version that is asked.
	StageCommit Stage = "commit"
	// StageBack: a party failed, and all go back to the former version.
	StageBack Stage = "back"
	// StageRemove: everything is removed.
	StageRemove Stage = "remove"
	// StageOver: nothing is left to do.
	StageOver Stage = "over"
)

// partyState is what a machine knows of one party.
type partyState struct {
	// prepared, applied, back and removed say which steps are done.
	prepared, applied, back, removed bool
	// failed is why the party failed at what is asked.
	failed string
	// owing is why the last try at what is owed, to go back or to remove, came to nothing. It is tried again.
	owing string
	// away is why the party's worker cannot be reached, and since when; "" when it can.
	away  string
	since time.Time
	// lost is why its cluster cannot be reached by its worker, and since when; "" when it can.
	lost      string
	lostSince time.Time
	// completed is when everything was seen in its place.
	completed time.Time
	// begun says that it was told to bring the version about. Before that, asked is since when a person is waited for to say so, approved that one has, and
	// freed when a person last let the operation go on.
	begun, approved bool
	asked, freed    time.Time
	// tries is how often in a row a step came to nothing; it is not tried again before again.
	tries int
	again time.Time
}

// absent is why nothing can be done in the party now, "" when something can.
func (p partyState) absent() string { return cmp.Or(p.away, p.lost) }

// The pause before a step that came to nothing is tried again: it doubles from the shortest to the longest, so that what is owed for weeks fills neither
// a history nor a log.
const (
	pauseShortest = 15 * time.Second
	pauseLongest  = 10 * time.Minute
	// pauseLost is the longest one while a cluster is out of reach: an update counts how long that lasts.
	pauseLost = time.Minute
)

// tryAgain has a step tried again after a pause, which is not longer than most.
func (p *partyState) tryAgain(now time.Time, most time.Duration) {
	p.again = now.Add(min(pauseShortest<<min(p.tries, 10), most))
	p.tries++
}

// Machine decides what an operation on a serving does next. It is told what happens and asked what to do.
type Machine struct {
	in      Input
	stage   Stage
	parties []partyState
	// committed is when the commit began: what is absent before it changes nothing, what is absent after it has all go back.
	committed time.Time
	// inherited: the operation before this one was not over when it gave way, so that parties may run something else than the former version.
	inherited bool
	// wentBack: the parties were told to go back.
	wentBack bool
	// began is when the operation began.
	began           time.Time
	reason, message string
	// superseded says by what, "" when by nothing.
	superseded string
	// run tells this run of the operation from every other.
	run string
	// paused is who holds the operation; nil when nobody does.
	paused *hold
	// log is what people have sent.
	log audit.Log
}

// NewMachine begins an operation.
func NewMachine(in Input, now time.Time) *Machine {
	m := &Machine{in: in, parties: make([]partyState, len(in.Parties)), began: now, stage: StagePrepare}
	if in.Kind == KindDelete {
		m.stage = StageRemove
	}
	m.advance(now)
	return m
}

// Name tells the machine which run of the operation it decides for: what is approved in one run is not approved in another.
func (m *Machine) Name(run string) { m.run = run }

// Inherit is told that the operation before this one was not over: an update that fails has the parties go back even when it has not changed them itself.
func (m *Machine) Inherit() { m.inherited = true }

// Stage is how far the operation is.
func (m *Machine) Stage() Stage { return m.stage }

// Over says that nothing is left to do. What is running is of no more interest.
func (m *Machine) Over() bool { return m.stage == StageOver }

// Wanted is what the party at that place is to do now.
func (m *Machine) Wanted(party int) Step {
	p := m.parties[party]
	switch m.stage {
	case StagePrepare:
		if !p.prepared && p.failed == "" {
			return StepPrepare
		}
	case StageCommit:
		if !p.applied && p.failed == "" && p.begun {
			return StepApply
		}
	case StageBack:
		if !p.back {
			return StepBack
		}
	case StageRemove:
		if !p.removed {
			return StepRemove
		}
	}
	return StepNone
}

// turn says whether a party may be brought to the new version now: all at once, or one after another as the policy says.
func (m *Machine) turn(party int) bool {
	if m.in.Kind != KindUpdate || m.in.Policy.Order != OrderSequential {
		return true
	}
	for _, i := range m.sequence() {
		if i == party {
			return true
		}
		if !m.parties[i].applied {
			return false
		}
	}
	return true
}

// sequence is the order of the parties: those that the policy names first, then the rest as the spec has them.
func (m *Machine) sequence() []int {
	var order []int
	for _, domain := range m.in.Policy.Parties {
		for i, p := range m.in.Parties {
			if p.Domain == domain {
				order = append(order, i)
			}
		}
	}
	for i := range m.in.Parties {
		if !slices.Contains(order, i) {
			order = append(order, i)
		}
	}
	return order
}

// Again is before when a party is not to begin with what it is wanted to do: the zero time when it may begin at once.
func (m *Machine) Again(party int) time.Time { return m.parties[party].again }

// Budget is how many seconds a party's cluster may be out of its worker's reach before that is told; 0 when it need not be told once more: nobody waits for
// the party with an end, and what is tried by the server alone costs no history.
func (m *Machine) Budget(party int) int64 {
	if m.parties[party].lost != "" && !m.needs(party) {
		return 0
	}
	return m.in.UnreachableBudgetSeconds
}

// patience is after how many tries in a row what is owed is tried by the server alone, as long as the reason is the same: that costs no history.
const patience = 3

// Told is the failure that a party need not tell once more; "" when it is to tell every one. A party for which nobody waits with an end
// may lack a permission for weeks: told once a minute, that would fill the history.
func (m *Machine) Told(party int) string {
	p := m.parties[party]
	switch {
	case p.lost != "" && !m.needs(party):
		return p.lost
	case p.tries < patience:
		return ""
	}
	return p.owing
}

// Done is told that a party has done a step. A step that is not wanted any more changes nothing.
func (m *Machine) Done(party int, step Step, now time.Time) {
	if m.answered(party, step) {
		p := &m.parties[party]
		p.tries, p.again, p.owing = 0, time.Time{}, ""
		switch step {
		case StepPrepare:
			p.prepared = true
		case StepApply:
			p.applied, p.completed = true, now
		case StepBack:
			p.back, p.completed = true, now
		case StepRemove:
			p.removed = true
		}
	}
	m.advance(now)
}

// Failed is told that a party cannot do a step. To go back and to remove are owed: they are tried again. A step that is not wanted any more changes nothing.
func (m *Machine) Failed(party int, step Step, message string, now time.Time) {
	if m.answered(party, step) {
		p := &m.parties[party]
		if step.Owed() {
			p.owing = message
			p.tryAgain(now, pauseLongest)
		} else {
			p.failed = message
		}
	}
	m.advance(now)
}

// answered notes that a party is there, and says whether what it answers to is still wanted.
func (m *Machine) answered(party int, step Step) bool {
	p := &m.parties[party]
	p.away, p.lost = "", ""
	return m.Wanted(party) == step
}

// Supersede ends the operation where it is: the newer one goes on from there.
func (m *Machine) Supersede(by SupersedeSignal) {
	if m.in.Kind == KindDelete || by.Generation <= m.in.Generation || m.Over() {
		return
	}
	m.superseded, m.stage = by.By, StageOver
}

// Superseded says that a newer operation has taken this one's place.
func (m *Machine) Superseded() bool { return m.superseded != "" }

// advance goes on to the next stage when this one is finished.
func (m *Machine) advance(now time.Time) {
	for before := Stage(""); before != m.stage; {
		before = m.stage
		m.expire(now)
		switch m.stage {
		case StagePrepare:
			m.prepare(now)
		case StageCommit:
			m.commit()
		case StageBack:
			if m.all(func(p partyState) bool { return p.back }) {
				m.stage = StageOver
			}
		case StageRemove:
			if m.all(func(p partyState) bool { return p.removed }) {
				m.stage = StageOver
			}
		}
	}
	m.begin(now)
}

// begin has the parties begin whose turn it is, unless a person has to say so first.
func (m *Machine) begin(now time.Time) {
	if m.stage != StageCommit {
		return
	}
	for i := range m.parties {
		p := &m.parties[i]
		switch {
		case p.begun || !m.turn(i):
		case m.needsApproval(i) && !p.approved:
			if p.asked.IsZero() {
				p.asked = now
			}
		case m.paused == nil:
			p.begun = true
		}
	}
}

// prepare: a creation and a recreation do not wait for the absent, an update does.
func (m *Machine) prepare(now time.Time) {
	failed := m.failed()
	switch {
	case failed != "" && m.in.Kind == KindUpdate && m.inherited:
		m.goBack(failed)
	case failed != "":
		m.stage, m.reason, m.message = StageOver, ReasonPartyFailed, failed
		if !m.inherited {
			m.message += "; nothing was changed in any party"
		}
		if m.in.Kind == KindUpdate {
			m.reason = ReasonUpdateRolledBack
		}
	case m.paused != nil: // nothing is changed before somebody resumes
	case m.in.Kind == KindUpdate && m.all(func(p partyState) bool { return p.prepared && p.absent() == "" }),
		m.in.Kind != KindUpdate && m.all(func(p partyState) bool { return p.prepared || p.absent() != "" }):
		m.stage, m.committed = StageCommit, now
	}
}

func (m *Machine) commit() {
	failed := m.failed()
	switch {
	case failed != "" && m.in.Kind == KindUpdate:
		m.goBack(failed)
	case m.all(func(p partyState) bool { return p.applied || p.failed != "" }):
		m.stage = StageOver
		if failed != "" {
			m.reason, m.message = ReasonPartyFailed, failed
		}
	}
}

// goBack has every party return to the former version, but for those that nobody has told to leave it. A pause of before does not count for it.
func (m *Machine) goBack(failed string) {
	m.stage, m.reason, m.message = StageBack, ReasonUpdateRolledBack, failed
	m.wentBack, m.paused = true, nil
	for i := range m.parties {
		p := &m.parties[i]
		p.tries, p.again = 0, time.Time{}
		p.back = !p.begun && !m.inherited
	}
}

// failed names the parties that failed, "" when none has.
func (m *Machine) failed() string {
	var all []string
	for i, p := range m.parties {
		if p.failed != "" {
			all = append(all, fmt.Sprintf("party %s: %s", m.in.Parties[i].Name(), p.failed))
		}
	}
	return strings.Join(all, "; ")
}

func (m *Machine) all(is func(partyState) bool) bool {
	return !slices.ContainsFunc(m.parties, func(p partyState) bool { return !is(p) })
}

// Released says that a deletion has nothing left to do in parties that can be reached: the others are cleaned up when they return, and
// the serving itself need not wait for them.
func (m *Machine) Released() bool {
	return m.in.Kind == KindDelete && m.all(func(p partyState) bool { return p.removed || p.absent() != "" })
}
