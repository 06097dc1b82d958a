package machine

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

// This file is about legs. A leg is what the party's worker does, action by action, without anybody else having to do or to decide something: from
// one rest to the next. One activity goes a whole leg, so that steps which rest for nobody cost no events and no round trips. It asks the machine for
// each action, as the workflow would; the workflow has its own machine go the same way by what the activity answers.

// ActivityLeg goes a leg. LegRequest → LegResult. Messages are only ever extended: recorded histories carry them.
const ActivityLeg = "rollout.Leg"

// LegRequest is a rollout at the beginning of a leg.
type LegRequest struct {
	Asked    Asked            `json:"asked"`
	Claim    string           `json:"claim"`
	Workflow plan.WorkflowRef `json:"workflow"`
	// State is the machine's, without its log.
	State State `json:"state"`
}

// LegResult is what was done, in its order.
type LegResult struct {
	Parts []Part `json:"parts,omitempty"`
}

// Part is one action of a leg that was carried out: when it was decided on, when it was done, and what it answered.
type Part struct {
	Kind  ActionKind           `json:"kind"`
	From  time.Time            `json:"from"`
	At    time.Time            `json:"at"`
	Begin *rollout.BeginResult `json:"begin,omitempty"`
	Pods  *rollout.MoveResult  `json:"pods,omitempty"`
	Route *rollout.RouteResult `json:"route,omitempty"`
}

// LegProgress is what the activity of a leg knows: its heartbeat, and what one attempt leaves to the next.
type LegProgress struct {
	workloadops.Progress
	// Of is the number of the part, from 1, that Progress is about.
	Of    int    `json:"of"`
	Parts []Part `json:"parts,omitempty"`
	// Status is the rollout as it is by now, without its history; nil before the first action.
	Status *rollout.Status `json:"status,omitempty"`
}

// result is the part's answer as a machine takes it.
func (p Part) result() (r Result) {
	if p.Begin != nil {
		r.Begin = *p.Begin
	}
	if p.Pods != nil {
		r.Pods = *p.Pods
	}
	if p.Route != nil {
		r.Route = *p.Route
	}
	return r
}

// partOf is a part as it is told.
func partOf(a Action, r Result, from, at time.Time) Part {
	p := Part{Kind: a.Kind, From: from, At: at}
	switch a.Kind {
	case ActBegin:
		p.Begin = &r.Begin
	case ActRoute:
		p.Route = &r.Route
	default:
		p.Pods = &r.Pods
	}
	return p
}

// leads says whether an action belongs to a leg: the party's worker carries it out alone.
func (a Action) leads() bool { return a.party() && !a.shared }

// Leg goes a leg, beside the workflow's own machine.
type Leg struct {
	machine *Machine
	parts   []Part
	// fits says that the parts so far were those that the machine has asked for.
	fits bool
}

// NewLeg begins a leg, or goes on with one of which these parts are done.
func NewLeg(in LegRequest, done []Part) *Leg {
	l := &Leg{machine: ResumeMachine(Setup{Asked: in.Asked, Claim: in.Claim, Workflow: in.Workflow}, in.State), fits: true}
	for _, p := range done {
		l.repeat(p)
	}
	return l
}

// repeat has the machine go on as it did when the part was done. Parts that it would not have asked for, as those of another build may be, are left
// out: every action finds out by itself what there is to be done.
func (l *Leg) repeat(p Part) {
	if !l.fits {
		return
	}
	a := l.machine.Next(p.From)
	if l.machine.mayWaitOut(a) { // it was over when the part began, whatever the clock of the worker said that did the one before
		a = l.machine.Next(*a.Until)
	}
	if l.fits = a.leads() && a.Kind == p.Kind; l.fits {
		l.machine.Start(a)
		l.machine.Done(p.result(), p.At)
		l.machine.restsFrom(p.At)
		l.parts = append(l.parts, p)
	}
}

// restsFrom has a brief rest begin when the pods of its step had come, however long after that it is asked for.
func (m *Machine) restsFrom(at time.Time) {
	s := m.s.Status
	if m.s.RestUntil == nil && m.inSteps() && m.briefAt(s.CurrentStepIndex) && (s.CurrentStepState == rollout.StateTrafficRouting || s.CurrentStepState == rollout.StatePaused) {
		m.s.RestUntil = new(at.Add(time.Duration(*m.step().PauseSeconds) * time.Second))
	}
}

// Next is the leg's next action, which is begun with that; false when the leg is over, or rests until a time that is near.
func (l *Leg) Next(now time.Time) (a Action, goesOn bool) {
	if l.machine.Stuck() && len(l.parts) > 0 { // the workflow tells lists of it
		return Action{Kind: ActRest}, false
	}
	steps := l.machine.s.Stage == stageSteps
	if a = l.machine.Next(now); steps && l.machine.endsWithSteps() {
		return Action{Kind: ActRest}, false
	}
	if a.leads() {
		l.machine.Start(a)
		return a, true
	}
	if !l.machine.waitsOut(a, now) {
		a.Until = nil
	}
	return a, false
}

// FirstMove is the Move that comes next when the claim, which is being taken, is answered so; nil when something else does, or the workflow would take the
// workload for untouched.
func (l *Leg) FirstMove(answer rollout.BeginResult, now time.Time) *rollout.MoveRequest {
	if !l.machine.s.OneWrite {
		return nil
	}
	ahead := ResumeMachine(l.machine.setup, copyOf(l.machine.s))
	ahead.running = l.machine.running
	ahead.Done(Result{Begin: answer}, now)
	if a := ahead.Next(now); a.Kind == ActMove && a.leads() {
		return a.Move
	}
	return nil
}

// waitsOut says whether a leg goes on when what it has come to is over: while routes take effect, which nobody ends, and through a brief rest.
func (m *Machine) waitsOut(a Action, now time.Time) bool {
	return m.mayWaitOut(a) && a.Until.Sub(now) <= shortRest
}

func (m *Machine) mayWaitOut(a Action) bool {
	return a.Kind == ActRest && a.Until != nil &&
		(a.waits == rollout.WaitTraffic || a.waits == rollout.WaitTimer && m.briefAt(m.s.Status.CurrentStepIndex))
}

// Done takes what the action has answered that was begun at from.
func (l *Leg) Done(a Action, r Result, from, now time.Time) {
	l.machine.Done(r, now)
	l.machine.restsFrom(now)
	l.parts = append(l.parts, partOf(a, r, from, now))
}

// Parts are what was done so far.
func (l *Leg) Parts() []Part { return l.parts }

// Status is the rollout as it is by now, without its history.
func (l *Leg) Status() *rollout.Status {
	s := l.machine.Status()
	s.History, s.Steps = nil, slices.Clone(s.Steps)
	return &s
}

// goingLeg is a leg that an activity goes, as the workflow's machine sees it. What comes meanwhile is carried out at once, so that it can be answered, and once
// more when it is known how far the leg has gone.
type goingLeg struct {
	setup Setup
	from  State
	later []func(*Machine)
}

// Leg says whether an action is the first of a leg. Under a Rollout object there are none: the object shows each step.
func (m *Machine) Leg(a Action) bool { return a.leads() && m.setup.Object == nil }

// BeginLeg begins a leg with an action that was decided on and not started yet.
func (m *Machine) BeginLeg(a *Action) LegRequest {
	setup := m.setup
	m.leg = &goingLeg{setup: setup, from: copyOf(m.s)}
	m.tellLeg(a)
	state := m.s
	state.Log.Entries, state.Log.Answers = nil, nil
	return LegRequest{Asked: setup.Asked, Claim: setup.Claim, Workflow: setup.Workflow, State: state}
}

// tellLeg says how far a leg goes if nothing keeps it, where that is further than its first step.
func (m *Machine) tellLeg(a *Action) {
	last := m.s.Status.CurrentStepIndex
	for last < m.steps() && (!m.restsAt(last) || m.briefAt(last)) {
		last++
	}
	if m.s.Stage != stageSteps && m.s.Stage != stageBegin || last == m.s.Status.CurrentStepIndex || a.Halts() || m.s.Check != checkNone {
		return
	}
	a.Summary = fmt.Sprintf("steps %d to %d of %d: pods to %s", m.s.Status.CurrentStepIndex, last, m.steps(),
		m.setup.Spec.Strategy.Steps[last-1].Replicas.String())
}

// copyOf is a state that shares nothing with another one.
func copyOf(s State) (c State) {
	raw, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	if err != nil {
		panic(fmt.Sprintf("the state of a rollout does not survive JSON: %v", err)) // it travels so in any case
	}
	return c
}

// LegEnd is how a leg ended: its parts, and what became of the action after them, if it was stopped or failed.
type LegEnd struct {
	Parts   []Part
	Stopped bool
	Failure *Failure
	// Unknown says that more may have been done than the parts tell.
	Unknown bool
}

// EndLeg takes what a leg has done, and carries out on that what came meanwhile.
func (m *Machine) EndLeg(end LegEnd, now time.Time) {
	going := m.leg
	l := &Leg{machine: ResumeMachine(going.setup, going.from), fits: true}
	on := l.machine
	on.s.Log = m.s.Log // what came is on record already
	for _, p := range end.Parts {
		p.From, p.At = earlier(p.From, now), earlier(p.At, now)
		l.repeat(p)
	}
	if !l.fits || end.Unknown {
		on.s.Moved, on.s.PodsUnsettled = true, true
	}
	on.stands(end, now)
	for _, input := range going.later {
		input(on)
	}
	m.s, m.setup, m.leg, m.running, m.interrupted = on.s, on.setup, nil, nil, false
	m.epoch++
}

// endsWithSteps says that finalising, which is what comes next, is another leg's: whoever sends a rollback while the last steps are made is told that it goes
// back through the steps, and it does so from behind the last of them as well.
func (m *Machine) endsWithSteps() bool {
	return m.s.BriefRests && m.setup.Spec.Policy.RollbackInBatches && m.s.Stage == stageFinal && m.s.Ending == rollout.EndSuccess
}

// stands is where the leg has left the rollout: behind its last part, or in the middle of the action after that.
func (m *Machine) stands(end LegEnd, now time.Time) {
	if after := ResumeMachine(m.setup, copyOf(m.s)); m.s.Stage == stageSteps {
		if after.Next(now); after.endsWithSteps() {
			return
		}
	}
	a := m.Next(now)
	switch {
	case !a.leads():
	case end.Failure != nil:
		m.Start(a)
		m.Failed(*end.Failure, now)
	case end.Stopped:
		m.Start(a)
		m.Stopped()
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// again carries a command out once more that was accepted while a leg was gone, when it is known how far that went. It may have come too late.
func (m *Machine) again(c rollout.Command, now time.Time) {
	refusal := m.stale(c)
	if refusal == "" {
		_, refusal = m.carryOut(c, now)
	}
	if refusal != "" {
		m.policyDecides(c.Verb, "it came too late: "+refusal, now)
	}
}

// onLeg has something carried out once more when the leg is over, if one is gone.
func (m *Machine) onLeg(input func(*Machine)) {
	if m.leg != nil {
		m.leg.later = append(m.leg.later, input)
	}
}
