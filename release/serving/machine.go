package serving

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/backoff"
)

// Step is what a party has to do.
type Step string

// The steps.
const (
	StepNone     Step = ""
	StepPrepare  Step = "prepare"
	StepApply    Step = "apply"
	StepRollback Step = "back"
	StepRemove   Step = "remove"
	// StepCreate checks all parties, and applies the version once all of them can run it: nothing is written before.
	StepCreate Step = "create"
)

// MustSucceed reports whether a step is retried until it succeeds, because it has no alternative.
func (s Step) MustSucceed() bool { return s == StepRollback || s == StepRemove }

// Stage is how far an operation has got.
type Stage string

const (
	// StagePrepare: every party is checked whether it can run the version; nothing is written.
	StagePrepare Stage = "prepare"
	// StageCommit: the requested version is applied to the parties.
	StageCommit Stage = "commit"
	// StageRollback: a party failed, and all are rolled back to the previous version.
	StageRollback Stage = "back"
	// StageRemove: all objects of the serving are deleted.
	StageRemove Stage = "remove"
	// StageDone: nothing is left to do.
	StageDone Stage = "over"
)

var stageSteps = map[Stage]Step{StagePrepare: StepPrepare, StageCommit: StepApply, StageRollback: StepRollback,
	StageRemove: StepRemove}

// doneFlag returns the flag that records whether the party has done a step.
func (p *PartyState) doneFlag(step Step) *bool {
	return map[Step]*bool{StepPrepare: &p.Prepared, StepApply: &p.Applied, StepCreate: &p.Applied,
		StepRollback: &p.RolledBack, StepRemove: &p.Removed}[step]
}

// unreachableReason returns why the party can do nothing now, "" if it can.
func (p PartyState) unreachableReason() string {
	return cmp.Or(p.WorkerUnreachable, p.ClusterUnreachable)
}

// The pause before a failed step is retried. It doubles each time, so that weeks of failures fill neither a history nor
// a log.
const (
	minRetryPause = 15 * time.Second
	maxRetryPause = 10 * time.Minute
	// maxUnreachablePause is the longest pause while a cluster is unreachable: an update measures how long that lasts.
	maxUnreachablePause = time.Minute
)

// scheduleRetry schedules the next attempt of a step after a pause of at most most.
func (p *PartyState) scheduleRetry(now time.Time, most time.Duration) {
	p.RetryAt = now.Add(backoff.After(p.Tries, minRetryPause, most))
	p.Tries++
}

// State is what an operation keeps in addition to its Input when its workflow continues as new. Fields are only ever
// added.
type State struct {
	Stage   Stage        `json:"stage"`
	Parties []PartyState `json:"parties"`
	// Began is when the operation began, Committed when it committed. If a party is unreachable for too long before the
	// commit, nothing has been changed; after it, all parties are rolled back.
	Began     time.Time `json:"began"`
	Committed time.Time `json:"committed,omitzero"`
	// Inherited: the previous operation had not ended when it gave way, so that parties may run something else than the
	// previous version.
	Inherited bool `json:"inherited,omitempty"`
	// SingleStep: one step checks the parties and applies the version. SingleStepEnded: that step has ended.
	// CreateUncertain: its result is unknown, and it may have changed the parties.
	SingleStep      bool `json:"atOnce,omitempty"`
	SingleStepEnded bool `json:"apart,omitempty"`
	CreateUncertain bool `json:"unsure,omitempty"`
	// RolledBack: the parties were ordered to roll back, for this reason.
	RolledBack bool   `json:"wentBack,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Message    string `json:"message,omitempty"`
	// Superseded is the operation that replaced this one, "" if there is none.
	Superseded string `json:"superseded,omitempty"`
	// Paused is the current pause; nil if the operation is not paused.
	Paused *Pause    `json:"paused,omitempty"`
	Log    audit.Log `json:"log"`
}

// Pause records who paused the operation, and since when.
type Pause struct {
	By    string    `json:"by"`
	Since time.Time `json:"since"`
}

// PartyState is the state of one party.
type PartyState struct {
	// The steps that are done.
	Prepared   bool `json:"prepared,omitempty"`
	Applied    bool `json:"applied,omitempty"`
	RolledBack bool `json:"back,omitempty"`
	Removed    bool `json:"removed,omitempty"`
	// Failed is why the party failed to do what was requested.
	Failed string `json:"failed,omitempty"`
	// RetryReason is why the last attempt of a step that must succeed, a rollback or a removal, failed. It is retried.
	RetryReason string `json:"owing,omitempty"`
	// WorkerUnreachable is why the party's worker is unreachable, and since when; "" if it is reachable.
	WorkerUnreachable      string    `json:"away,omitempty"`
	WorkerUnreachableSince time.Time `json:"since,omitzero"`
	// ClusterUnreachable is why its worker cannot reach its cluster, and since when; "" if it can.
	ClusterUnreachable      string    `json:"lost,omitempty"`
	ClusterUnreachableSince time.Time `json:"lostSince,omitzero"`
	// Completed is when the party was last seen complete.
	Completed time.Time `json:"completed,omitzero"`
	// Begun is true when the party was ordered to apply the version. Before that, ApprovalSince is since when it waits for
	// an approval, Approved whether it has one, and ResumedAt when a user last let the operation continue.
	Begun         bool      `json:"begun,omitempty"`
	Approved      bool      `json:"approved,omitempty"`
	ApprovalSince time.Time `json:"asked,omitzero"`
	ResumedAt     time.Time `json:"freed,omitzero"`
	// Tries is the number of consecutive failures of a step; it is not retried before RetryAt.
	Tries   int       `json:"tries,omitempty"`
	RetryAt time.Time `json:"again,omitzero"`
}

// Machine decides what an operation on a serving does next. It receives events, and returns the steps to execute.
type Machine struct {
	in Input
	// run identifies this operation, and distinguishes it from others with the same input.
	run string
	s   State
}

// FirstStage returns the stage that lists show for an operation that was just started, until it reports its own.
func (in Input) FirstStage() Stage {
	if in.Kind == KindCreate && in.IsOneGroup() {
		return StageCommit // UseSingleStep moves it there
	}
	return firstStage(in.Kind)
}

// firstStage returns the stage in which an operation of that kind begins.
func firstStage(kind string) Stage {
	if kind == KindDelete {
		return StageRemove
	}
	return StagePrepare
}

// NewMachine returns the machine of a new operation.
func NewMachine(in Input, now time.Time) *Machine {
	m := &Machine{in: in, s: State{Stage: firstStage(in.Kind), Parties: make([]PartyState, len(in.Parties)),
		Began: now}}
	m.advance(now)
	return m
}

// ResumeMachine returns the machine of an operation that continues from the state of its previous run.
func ResumeMachine(in Input, state State) *Machine { return &Machine{in: in, s: state} }

// State returns the state to keep.
func (m *Machine) State() State { return m.s }

// SetRun sets the run of the operation, which is part of its approval gates: an approval for one run is not valid in
// another.
func (m *Machine) SetRun(run string) { m.run = run }

// StartClock makes absences count from now: the previous operation may have taken hours to give way.
func (m *Machine) StartClock(now time.Time) { m.s.Began = now }

// Inherit records that the previous operation had not ended: if this update fails, it also rolls back parties that it
// has not changed itself.
func (m *Machine) Inherit() { m.s.Inherited = true }

// Stage returns the current stage.
func (m *Machine) Stage() Stage { return m.s.Stage }

// Finished reports whether nothing is left to do. Results of steps that are still running are ignored.
func (m *Machine) Finished() bool { return m.s.Stage == StageDone }

// NextStep returns what the party at that index has to do now.
func (m *Machine) NextStep(party int) Step {
	p, step := &m.s.Parties[party], stageSteps[m.s.Stage]
	if step == StepNone || *p.doneFlag(step) || !step.MustSucceed() && p.Failed != "" || step == StepApply && !p.Begun {
		return StepNone
	}
	if step == StepApply && m.s.SingleStep {
		return StepCreate
	}
	return step
}

// mayBegin reports whether the new version may be applied to a party now: to all at once, or one after another as the
// policy says.
func (m *Machine) mayBegin(party int) bool {
	if m.in.Kind != KindUpdate || m.in.Policy.Order != OrderSequential {
		return true
	}
	order := m.sequence()
	return !slices.ContainsFunc(order[:slices.Index(order, party)], func(i int) bool { return !m.s.Parties[i].Applied })
}

// sequence returns the order of the parties: those that the policy lists first, then the others in the order of the
// spec.
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

// NotBefore returns the earliest time at which a party may start its next step; the zero time means at once.
func (m *Machine) NotBefore(party int) time.Time { return m.s.Parties[party].RetryAt }

// UnreachableBudget returns for how many seconds a party's cluster may be unreachable before that is reported. 0 means
// that it is not reported: no deadline depends on the party, and retries by Temporal add nothing to the history.
func (m *Machine) UnreachableBudget(party int) int64 {
	if m.s.Parties[party].ClusterUnreachable != "" && !m.requires(party) {
		return 0
	}
	return m.in.UnreachableBudgetSeconds
}

// maxReportedFailures is the number of consecutive failures that are reported; after that, Temporal alone retries while
// the reason stays the same, which adds nothing to the history.
const maxReportedFailures = 3

// KnownFailure returns the failure that is already known, which the party need not report again; "" if there is none.
// Reporting a lost permission every minute for weeks would fill the history.
func (m *Machine) KnownFailure(party int) string {
	p := m.s.Parties[party]
	switch {
	case p.ClusterUnreachable != "" && !m.requires(party):
		return p.ClusterUnreachable
	case p.Tries < maxReportedFailures:
		return ""
	}
	return p.RetryReason
}

// Done records that a party has done a step. A step that is no longer current changes nothing.
func (m *Machine) Done(party int, step Step, now time.Time) {
	if m.acceptResult(party, step) {
		p := &m.s.Parties[party]
		p.Tries, p.RetryAt, p.RetryReason = 0, time.Time{}, ""
		*p.doneFlag(step) = true
		if step == StepApply || step == StepRollback {
			p.Completed = now
		}
	}
	m.advance(now)
}

// Failed records that a party cannot do a step. Steps that must succeed are retried. A step that is no longer current
// changes nothing.
func (m *Machine) Failed(party int, step Step, message string, now time.Time) {
	if m.acceptResult(party, step) {
		p := &m.s.Parties[party]
		if step.MustSucceed() {
			p.RetryReason = message
			p.scheduleRetry(now, maxRetryPause)
		} else {
			p.Failed = message
		}
	}
	m.advance(now)
}

// acceptResult records that a party is reachable, and reports whether the step is still its current one.
func (m *Machine) acceptResult(party int, step Step) bool {
	p := &m.s.Parties[party]
	p.WorkerUnreachable, p.ClusterUnreachable = "", ""
	return m.NextStep(party) == step
}

// Supersede ends the operation in its current state, from which the newer one continues.
func (m *Machine) Supersede(by SupersedeSignal) {
	if m.in.Kind == KindDelete || by.Generation <= m.in.Generation || m.Finished() {
		return
	}
	m.s.Superseded, m.s.Stage = by.By, StageDone
}

// Superseded reports whether a newer operation has replaced this one.
func (m *Machine) Superseded() bool { return m.s.Superseded != "" }

// advance moves to the next stage when the current one is finished.
func (m *Machine) advance(now time.Time) {
	for before := Stage(""); before != m.s.Stage; {
		before = m.s.Stage
		m.expire(now)
		switch m.s.Stage {
		case StagePrepare:
			m.prepare(now)
		case StageCommit:
			m.commit()
		case StageRollback, StageRemove:
			if m.all(func(p PartyState) bool { return *p.doneFlag(stageSteps[before]) }) {
				m.s.Stage = StageDone
			}
		}
	}
	m.begin(now)
}

// begin starts the parties whose turn it is, unless they need an approval first.
func (m *Machine) begin(now time.Time) {
	if m.s.Stage != StageCommit {
		return
	}
	for i := range m.s.Parties {
		p := &m.s.Parties[i]
		switch {
		case p.Begun || !m.mayBegin(i):
		case m.needsApproval(i) && !p.Approved:
			if p.ApprovalSince.IsZero() {
				p.ApprovalSince = now
			}
		case m.s.Paused == nil:
			p.Begun = true
		}
	}
}

// prepare ends StagePrepare when possible. A creation and a recreation do not wait for unreachable parties, an update
// does.
func (m *Machine) prepare(now time.Time) {
	failed := m.failed()
	switch {
	case failed != "" && m.in.Kind == KindUpdate && m.s.Inherited:
		m.rollBack(failed)
	case failed != "":
		m.s.Stage, m.s.Reason, m.s.Message = StageDone, ReasonPartyFailed, failed
		switch {
		case m.s.CreateUncertain:
			m.s.Message += "; the worker stopped while it was updating the parties: objects that it wrote in the " +
				"others stay until the serving is updated or deleted"
		case !m.s.Inherited:
			m.s.Message += "; nothing was changed in any party"
		}
		if m.in.Kind == KindUpdate {
			m.s.Reason = ReasonUpdateRolledBack
		}
	case m.s.Paused != nil: // nothing is changed before it is resumed
	case m.in.Kind == KindUpdate && m.all(func(p PartyState) bool { return p.Prepared && p.unreachableReason() == "" }),
		m.in.Kind != KindUpdate && m.all(func(p PartyState) bool { return p.Prepared || p.unreachableReason() != "" }):
		m.s.Stage, m.s.Committed = StageCommit, now
	}
}

func (m *Machine) commit() {
	failed := m.failed()
	switch {
	case failed != "" && m.in.Kind == KindUpdate:
		m.rollBack(failed)
	case m.all(func(p PartyState) bool { return p.Applied || p.Failed != "" }):
		m.s.Stage = StageDone
		if failed != "" {
			m.s.Reason, m.s.Message = ReasonPartyFailed, failed
		}
	}
}

// rollBack rolls every party back to the previous version, except those that never left it. It ends a pause.
func (m *Machine) rollBack(failed string) {
	m.s.Stage, m.s.Reason, m.s.Message = StageRollback, ReasonUpdateRolledBack, failed
	m.s.RolledBack, m.s.Paused = true, nil
	for i := range m.s.Parties {
		p := &m.s.Parties[i]
		p.Tries, p.RetryAt = 0, time.Time{}
		p.RolledBack = !p.Begun && !m.s.Inherited
	}
}

// failed lists the failures of the parties, "" if there are none.
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

// Released reports whether a deletion has nothing left to do in reachable parties: the serving need not wait for the
// others, which are cleaned up later.
func (m *Machine) Released() bool {
	return m.in.Kind == KindDelete && m.all(func(p PartyState) bool { return p.Removed || p.unreachableReason() != "" })
}
