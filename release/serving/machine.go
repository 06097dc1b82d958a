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
	// StepCreate asks all parties, and brings them to the version once all have said that they can run it: nothing is written before.
	StepCreate Step = "create"
)

// Owed says that a step is tried again until it is done: nothing else can take its place.
func (s Step) Owed() bool { return s == StepBack || s == StepRemove }

// Stage is how far an operation is.
type Stage string

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

var stageSteps = map[Stage]Step{StagePrepare: StepPrepare, StageCommit: StepApply, StageBack: StepBack, StageRemove: StepRemove}

// done says whether the party has done a step.
func (p *PartyState) done(step Step) *bool {
	return map[Step]*bool{StepPrepare: &p.Prepared, StepApply: &p.Applied, StepCreate: &p.Applied, StepBack: &p.Back, StepRemove: &p.Removed}[step]
}

// absent is why nothing can be done in the party now, "" when something can.
func (p PartyState) absent() string { return cmp.Or(p.WorkerUnreachable, p.ClusterUnreachable) }

// The pause before a failed step is tried again doubles, so that weeks of failures fill neither a history nor a log.
const (
	pauseShortest = 15 * time.Second
	pauseLongest  = 10 * time.Minute
	// pauseLost is the longest one while a cluster is out of reach: an update counts how long that lasts.
	pauseLost = time.Minute
)

// tryAgain has a step tried again after a pause, which is not longer than most.
func (p *PartyState) tryAgain(now time.Time, most time.Duration) {
	p.Again = now.Add(min(pauseShortest<<min(p.Tries, 10), most))
	p.Tries++
}

// State is what an operation remembers beside its Input when its workflow continues as new. It is only ever extended.
type State struct {
	Stage   Stage        `json:"stage"`
	Parties []PartyState `json:"parties"`
	// Began is when the operation began, Committed its commit: who is absent before that changes nothing, who is absent after it has all go
	// back.
	Began     time.Time `json:"began"`
	Committed time.Time `json:"committed,omitzero"`
	// Inherited: the operation before this one wasn't over when it gave way: parties may run something else than the former version.
	Inherited bool `json:"inherited,omitempty"`
	// AtOnce: the parties are asked and brought to the version by one step. Apart: such a step has ended. Unsure: it has come to nothing, and may have changed
	// them.
	AtOnce bool `json:"atOnce,omitempty"`
	Apart  bool `json:"apart,omitempty"`
	Unsure bool `json:"unsure,omitempty"`
	// WentBack: the parties were told to go back, for this reason.
	WentBack bool   `json:"wentBack,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Message  string `json:"message,omitempty"`
	// Superseded says by what, "" when by nothing.
	Superseded string `json:"superseded,omitempty"`
	// Paused is who holds the operation; nil when nobody does.
	Paused *Hold     `json:"paused,omitempty"`
	Log    audit.Log `json:"log"`
}

// Hold is a pause: who asked for it, and since when it lasts.
type Hold struct {
	By    string    `json:"by"`
	Since time.Time `json:"since"`
}

// PartyState is what is known of one party.
type PartyState struct {
	// Which steps are done.
	Prepared bool `json:"prepared,omitempty"`
	Applied  bool `json:"applied,omitempty"`
	Back     bool `json:"back,omitempty"`
	Removed  bool `json:"removed,omitempty"`
	// Failed is why the party failed at what is asked.
	Failed string `json:"failed,omitempty"`
	// Owing is why the last try at what is owed, to go back or to remove, failed. It is tried again.
	Owing string `json:"owing,omitempty"`
	// WorkerUnreachable is why the party's worker cannot be reached, and since when; "" when it can.
	WorkerUnreachable      string    `json:"away,omitempty"`
	WorkerUnreachableSince time.Time `json:"since,omitzero"`
	// ClusterUnreachable is why its cluster cannot be reached by its worker, and since when; "" when it can.
	ClusterUnreachable      string    `json:"lost,omitempty"`
	ClusterUnreachableSince time.Time `json:"lostSince,omitzero"`
	// Completed is when everything was seen in its place.
	Completed time.Time `json:"completed,omitzero"`
	// Begun says that it was told to apply the version. Before that, Asked is since when an approval is waited for, Approved that there is
	// one, and Freed when a person last let the operation go on.
	Begun    bool      `json:"begun,omitempty"`
	Approved bool      `json:"approved,omitempty"`
	Asked    time.Time `json:"asked,omitzero"`
	Freed    time.Time `json:"freed,omitzero"`
	// Tries is how often in a row a step failed; it is not tried again before Again.
	Tries int       `json:"tries,omitempty"`
	Again time.Time `json:"again,omitzero"`
}

// Machine decides what an operation on a serving does next. It is told what happens and asked what to do.
type Machine struct {
	in Input
	// run tells this operation from every other, also from those with the same input.
	run string
	s   State
}

// FirstStage is the stage in which lists show an operation that has been started, until it says itself where it is.
func (in Input) FirstStage() Stage {
	if in.Kind == KindCreate && in.IsOneGroup() {
		return StageCommit // it soon is (AtOnce)
	}
	return firstStage(in.Kind)
}

// firstStage is the stage in which an operation of that kind begins.
func firstStage(kind string) Stage {
	if kind == KindDelete {
		return StageRemove
	}
	return StagePrepare
}

// NewMachine begins an operation.
func NewMachine(in Input, now time.Time) *Machine {
	m := &Machine{in: in, s: State{Stage: firstStage(in.Kind), Parties: make([]PartyState, len(in.Parties)), Began: now}}
	m.advance(now)
	return m
}

// ResumeMachine goes on where a run that continued as new was.
func ResumeMachine(in Input, state State) *Machine { return &Machine{in: in, s: state} }

// State is what the machine has to remember.
func (m *Machine) State() State { return m.s }

// SetRun tells the machine which operation it decides for: what is approved in one is not approved in another.
func (m *Machine) SetRun(run string) { m.run = run }

// Start has absences count from now: the operation before this one may have taken hours to give way.
func (m *Machine) Start(now time.Time) { m.s.Began = now }

// Inherit says that the operation before this one wasn't over: if this update fails, parties go back that it hasn't changed itself.
func (m *Machine) Inherit() { m.s.Inherited = true }

// Stage is how far the operation is.
func (m *Machine) Stage() Stage { return m.s.Stage }

// Over says that nothing is left to do. What is running is of no more interest.
func (m *Machine) Over() bool { return m.s.Stage == StageOver }

// Wanted is what the party at that place is to do now.
func (m *Machine) Wanted(party int) Step {
	p, step := &m.s.Parties[party], stageSteps[m.s.Stage]
	if step == StepNone || *p.done(step) || !step.Owed() && p.Failed != "" || step == StepApply && !p.Begun {
		return StepNone
	}
	if step == StepApply && m.s.AtOnce {
		return StepCreate
	}
	return step
}

// mayBegin says whether a party may be brought to the new version now: all at once, or one after another as the policy says.
func (m *Machine) mayBegin(party int) bool {
	if m.in.Kind != KindUpdate || m.in.Policy.Order != OrderSequential {
		return true
	}
	order := m.sequence()
	return !slices.ContainsFunc(order[:slices.Index(order, party)], func(i int) bool { return !m.s.Parties[i].Applied })
}

// sequence is the order of the parties: those that the policy names first, then the rest as the spec has them.
func (m *Machine) sequence() []int {
	order := make([]int, len(m.in.Parties))
	for i := range order {
		order[i] = i
	}
	rank := func(i int) int {
		if named := slices.Index(m.in.Policy.Parties, m.in.Parties[i].Domain); named >= 0 {
			return named
		}
		return len(m.in.Policy.Parties)
	}
	slices.SortStableFunc(order, func(a, b int) int { return rank(a) - rank(b) })
	return order
}

// NotBefore is before when a party is not to begin with what it is wanted to do: the zero time when it may begin at once.
func (m *Machine) NotBefore(party int) time.Time { return m.s.Parties[party].Again }

// Budget is how many seconds a party's cluster may be unreachable before that is reported; 0: don't report it, since nobody waits for the
// party with a deadline and retries of the server cost no history.
func (m *Machine) Budget(party int) int64 {
	if m.s.Parties[party].ClusterUnreachable != "" && !m.needs(party) {
		return 0
	}
	return m.in.UnreachableBudgetSeconds
}

// patience is how many failures in a row are reported; then the server alone retries while the reason stays the same, at no cost of
// history.
const patience = 3

// KnownFailure is the failure that is known already, "" for none: the party needn't report it. A lost permission that was reported every
// minute for weeks would fill the history.
func (m *Machine) KnownFailure(party int) string {
	p := m.s.Parties[party]
	switch {
	case p.ClusterUnreachable != "" && !m.needs(party):
		return p.ClusterUnreachable
	case p.Tries < patience:
		return ""
	}
	return p.Owing
}

// Done is told that a party has done a step. A step that is not wanted any more changes nothing.
func (m *Machine) Done(party int, step Step, now time.Time) {
	if m.answered(party, step) {
		p := &m.s.Parties[party]
		p.Tries, p.Again, p.Owing = 0, time.Time{}, ""
		*p.done(step) = true
		if step == StepApply || step == StepBack {
			p.Completed = now
		}
	}
	m.advance(now)
}

// Failed says that a party can't do a step. Owed steps are tried again. A step that isn't wanted any more changes nothing.
func (m *Machine) Failed(party int, step Step, message string, now time.Time) {
	if m.answered(party, step) {
		p := &m.s.Parties[party]
		if step.Owed() {
			p.Owing = message
			p.tryAgain(now, pauseLongest)
		} else {
			p.Failed = message
		}
	}
	m.advance(now)
}

// answered notes that a party is there, and says whether what it answers to is still wanted.
func (m *Machine) answered(party int, step Step) bool {
	p := &m.s.Parties[party]
	p.WorkerUnreachable, p.ClusterUnreachable = "", ""
	return m.Wanted(party) == step
}

// Supersede ends the operation where it is: the newer one goes on from there.
func (m *Machine) Supersede(by SupersedeSignal) {
	if m.in.Kind == KindDelete || by.Generation <= m.in.Generation || m.Over() {
		return
	}
	m.s.Superseded, m.s.Stage = by.By, StageOver
}

// Superseded says that a newer operation has taken this one's place.
func (m *Machine) Superseded() bool { return m.s.Superseded != "" }

// advance goes on to the next stage when this one is finished.
func (m *Machine) advance(now time.Time) {
	for before := Stage(""); before != m.s.Stage; {
		before = m.s.Stage
		m.expire(now)
		switch m.s.Stage {
		case StagePrepare:
			m.prepare(now)
		case StageCommit:
			m.commit()
		case StageBack, StageRemove:
			if m.all(func(p PartyState) bool { return *p.done(stageSteps[before]) }) {
				m.s.Stage = StageOver
			}
		}
	}
	m.begin(now)
}

// begin has the parties begin whose turn it is, unless a person has to say so first.
func (m *Machine) begin(now time.Time) {
	if m.s.Stage != StageCommit {
		return
	}
	for i := range m.s.Parties {
		p := &m.s.Parties[i]
		switch {
		case p.Begun || !m.mayBegin(i):
		case m.needsApproval(i) && !p.Approved:
			if p.Asked.IsZero() {
				p.Asked = now
			}
		case m.s.Paused == nil:
			p.Begun = true
		}
	}
}

// prepare: a creation and a recreation do not wait for the absent, an update does.
func (m *Machine) prepare(now time.Time) {
	failed := m.failed()
	switch {
	case failed != "" && m.in.Kind == KindUpdate && m.s.Inherited:
		m.goBack(failed)
	case failed != "":
		m.s.Stage, m.s.Reason, m.s.Message = StageOver, ReasonPartyFailed, failed
		switch {
		case m.s.Unsure:
			m.s.Message += "; the worker died when it brought the parties to it: what it has written in the others stays until the serving is updated or deleted"
		case !m.s.Inherited:
			m.s.Message += "; nothing was changed in any party"
		}
		if m.in.Kind == KindUpdate {
			m.s.Reason = ReasonUpdateRolledBack
		}
	case m.s.Paused != nil: // nothing is changed before somebody resumes
	case m.in.Kind == KindUpdate && m.all(func(p PartyState) bool { return p.Prepared && p.absent() == "" }),
		m.in.Kind != KindUpdate && m.all(func(p PartyState) bool { return p.Prepared || p.absent() != "" }):
		m.s.Stage, m.s.Committed = StageCommit, now
	}
}

func (m *Machine) commit() {
	failed := m.failed()
	switch {
	case failed != "" && m.in.Kind == KindUpdate:
		m.goBack(failed)
	case m.all(func(p PartyState) bool { return p.Applied || p.Failed != "" }):
		m.s.Stage = StageOver
		if failed != "" {
			m.s.Reason, m.s.Message = ReasonPartyFailed, failed
		}
	}
}

// goBack has every party return to the former version, but for those that never left it. It ends a pause.
func (m *Machine) goBack(failed string) {
	m.s.Stage, m.s.Reason, m.s.Message = StageBack, ReasonUpdateRolledBack, failed
	m.s.WentBack, m.s.Paused = true, nil
	for i := range m.s.Parties {
		p := &m.s.Parties[i]
		p.Tries, p.Again = 0, time.Time{}
		p.Back = !p.Begun && !m.s.Inherited
	}
}

// failed names the parties that failed, "" when none has.
func (m *Machine) failed() string {
	var all []string
	for i, p := range m.s.Parties {
		if p.Failed != "" {
			all = append(all, fmt.Sprintf("party %s: %s", m.in.Parties[i].Name(), p.Failed))
		}
	}
	return strings.Join(all, "; ")
}

func (m *Machine) all(is func(PartyState) bool) bool {
	return !slices.ContainsFunc(m.s.Parties, func(p PartyState) bool { return !is(p) })
}

// Released says that a deletion has nothing left to do in reachable parties: the serving needn't wait for the others, which are cleaned
// up later.
func (m *Machine) Released() bool {
	return m.in.Kind == KindDelete && m.all(func(p PartyState) bool { return p.Removed || p.absent() != "" })
}
