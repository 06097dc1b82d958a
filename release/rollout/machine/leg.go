package machine

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// This file is about legs. A leg is the sequence of actions from one wait to the next that the party's worker can
// execute without another participant or a decision. One activity executes the leg, so that steps without a pause cost
// no events and no round trips. The activity asks a machine for each action, as the workflow would. The workflow then
// replays the activity's result on its own machine. Every action of the party is part of a leg.

// ActivityLeg executes a leg. LegRequest → LegResult. Messages are only ever extended: recorded histories carry them.
const ActivityLeg = "rollout.Leg"

// LegRequest is a rollout at the start of a leg.
type LegRequest struct {
	Request  Request           `json:"asked"`
	Claim    string            `json:"claim"`
	Workflow audit.WorkflowRef `json:"workflow"`
	// State is the machine's state without its log.
	State State `json:"state"`
}

// LegResult lists the actions of a leg in the order in which they were executed.
type LegResult struct {
	Parts []Part `json:"parts,omitempty"`
	// Unfinished is true if the action after them was started; SpentSeconds is how much of its deadline it has used.
	Unfinished   bool  `json:"unfinished,omitempty"`
	SpentSeconds int64 `json:"spentSeconds,omitempty"`
	// Unknown is true if more may have been done than the parts show.
	Unknown bool `json:"unknown,omitempty"`
}

// Part is one executed action of a leg: when it was decided, when it was done, and its result.
type Part struct {
	Kind ActionKind `json:"kind"`
	// AfterCrash is true for the first part of an attempt that follows one whose results are not all known
	// (Leg.Repeat).
	AfterCrash bool `json:"afterCrash,omitempty"`

	From  time.Time            `json:"from"`
	At    time.Time            `json:"at"`
	Begin *rollout.BeginResult `json:"begin,omitempty"`
	Pods  *rollout.MoveResult  `json:"pods,omitempty"`
	Route *rollout.RouteResult `json:"route,omitempty"`
}

// LegProgress is the heartbeat of a leg's activity: what one attempt leaves for the next.
type LegProgress struct {
	workload.Progress
	// PartNumber is the number, from 1, of the part that Progress is about; 0: none. Action is the Key of its action.
	PartNumber int    `json:"of"`
	Action     string `json:"action,omitempty"`
	Parts      []Part `json:"parts,omitempty"`
	// Spent is how many seconds of their deadline interrupted actions have used, by Key.
	Spent map[string]float64 `json:"spent,omitempty"`
	// Status is the current status of the rollout without its history; nil before the first action.
	Status *rollout.Status `json:"status,omitempty"`
	// Complete is true once the attempt has ended by itself: then Parts are all that was done. The heartbeat of a
	// worker that died, or that lost its connection, is older than what the worker did last.
	Complete bool `json:"complete,omitempty"`
}

// SpentSeconds returns how much of its deadline the action after the parts has used; 0 if it has not begun.
func (p LegProgress) SpentSeconds() int64 {
	if p.PartNumber != len(p.Parts)+1 {
		return 0
	}
	return int64(p.Elapsed().Seconds())
}

// result returns the part's result in the form that a machine takes.
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

// partOf returns the part that records an executed action.
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

// singleActionLegs reports whether each leg executes one action only: a Rollout object shows each step.
func (m *Machine) singleActionLegs() bool { return m.setup.Object != nil }

// Leg executes a leg with a copy of the workflow's machine.
type Leg struct {
	machine *Machine
	parts   []Part
	// matches is true while every part so far was the one that the machine asked for.
	matches bool
	// repeats is true from Repeat until the next part.
	repeats bool
}

// NewLeg starts a leg, or continues one of which these parts are done.
func NewLeg(in LegRequest, done []Part) *Leg {
	l := &Leg{machine: ResumeMachine(Setup{Request: in.Request, Claim: in.Claim, Workflow: in.Workflow}, in.State),
		matches: true}
	for _, p := range done {
		l.replay(p)
	}
	if !l.matches {
		l.Repeat()
	}
	return l
}

// Repeat continues the leg after an attempt that may have done more than the parts show, as its worker died.
func (l *Leg) Repeat() {
	l.lose()
	l.repeats = true
}

// lose prepares for the repetition of what may have come after the parts, if that is more of the steps.
func (l *Leg) lose() {
	if n := len(l.parts); n == 0 || !l.endsAt(n) && l.machine.makesStepAfter(l.parts[n-1].At) {
		l.machine.loseLeg()
	}
}

// endsAt reports whether the leg ends after this many parts whatever comes next: under a Rollout object, and with a pod
// in trouble, so that the workflow can publish it.
func (l *Leg) endsAt(parts int) bool {
	return parts > 0 && (l.machine.PodStuck() || l.machine.singleActionLegs())
}

// makesStepAfter reports whether the leg makes more of the steps, after a wait for routes or a brief pause. Finalising
// comes after all steps, and only restores.
func (m *Machine) makesStepAfter(at time.Time) bool {
	after := ResumeMachine(m.setup, deepCopy(m.s))
	a := after.Next(at)
	if after.mayWaitInLeg(a) {
		a = after.Next(*a.Until)
	}
	return a.OnParty() && after.s.Stage != stageFinal
}

// Key identifies an action of the leg among those of the rollout.
func (l *Leg) Key(a Action) string { return l.machine.key(a) }

func (m *Machine) key(a Action) string {
	_, key := a.deadline()
	return fmt.Sprintf("%d %s", m.s.Visit, key)
}

// Repeats reports whether no part was executed since Repeat.
func (l *Leg) Repeats() bool { return l.repeats }

// replay advances the machine by a part as if it had just been executed. Parts that the machine would not have asked
// for, as those of another build may be, are skipped: every action finds out by itself what is left to do.
func (l *Leg) replay(p Part) {
	if !l.matches {
		return
	}
	if p.AfterCrash {
		l.lose()
	}
	a := l.machine.Next(p.From)
	// it had ended when the part began, even if the clock of the previous part's worker disagrees
	if l.machine.mayWaitInLeg(a) {
		a = l.machine.Next(*a.Until)
	}
	if l.matches = a.OnParty() && a.Kind == p.Kind; l.matches {
		l.machine.Start(a)
		l.machine.Done(p.result(), p.At)
		l.machine.startBriefPause(p.At)
		l.parts = append(l.parts, p)
	}
}

// startBriefPause starts a brief pause at the moment when the pods of its step were done, however long after that the
// next action is asked for.
func (m *Machine) startBriefPause(at time.Time) {
	s := m.s.Status
	if m.s.PauseUntil == nil && m.inSteps() && m.briefPauseAt(s.CurrentStepIndex) &&
		(s.CurrentStepState == rollout.StateTrafficRouting || s.CurrentStepState == rollout.StatePaused) {
		m.s.PauseUntil = new(at.Add(time.Duration(*m.step().PauseSeconds) * time.Second))
	}
}

// Next returns the leg's next action and starts it. It returns false when the leg has ended, or waits until the
// action's Until.
func (l *Leg) Next(now time.Time) (a Action, goesOn bool) {
	if l.endsAt(len(l.parts)) {
		return Action{Kind: ActWait}, false
	}
	steps := l.machine.s.Stage == stageSteps
	if a = l.machine.Next(now); steps && l.machine.endsBeforeFinalising() {
		return Action{Kind: ActWait}, false
	}
	if a.OnParty() {
		l.machine.Start(a)
		return a, true
	}
	if !l.machine.canWaitInLeg(a, now) {
		a.Until = nil
	}
	return a, false
}

// FirstMove returns the Move that follows in this leg if the claim, which is being taken, gets this result; nil: none.
func (l *Leg) FirstMove(answer rollout.BeginResult, now time.Time) *rollout.MoveRequest {
	if l.machine.singleActionLegs() {
		return nil
	}
	ahead := ResumeMachine(l.machine.setup, deepCopy(l.machine.s))
	ahead.running = l.machine.running
	ahead.Done(Result{Begin: answer}, now)
	if a := ahead.Next(now); a.Kind == ActMove {
		return a.Move
	}
	return nil
}

// canWaitInLeg reports whether the leg may sleep through the wait a (a traffic grace period or a brief timed pause)
// instead of ending.
func (m *Machine) canWaitInLeg(a Action, now time.Time) bool {
	return m.mayWaitInLeg(a) && a.Until.Sub(now) <= maxBriefPause
}

// mayWaitInLeg is canWaitInLeg without the limit on the time that is left.
func (m *Machine) mayWaitInLeg(a Action) bool {
	return a.Kind == ActWait && a.Until != nil && (a.waitKind == rollout.WaitTraffic ||
		a.waitKind == rollout.WaitTimer && m.briefPauseAt(m.s.Status.CurrentStepIndex))
}

// Done takes the result of an action that was started at from.
func (l *Leg) Done(a Action, r Result, from, now time.Time) {
	l.machine.Done(r, now)
	l.machine.startBriefPause(now)
	p := partOf(a, r, from, now)
	p.AfterCrash, l.repeats = l.repeats, false
	l.parts = append(l.parts, p)
}

// Parts returns what was done so far.
func (l *Leg) Parts() []Part { return l.parts }

// Status returns the current status of the rollout without its history.
func (l *Leg) Status() *rollout.Status {
	s := l.machine.Status()
	s.History, s.Steps = nil, slices.Clone(s.Steps)
	return &s
}

// BeginLeg starts a leg with an action that was decided and not started yet.
func (m *Machine) BeginLeg(a *Action) LegRequest {
	if !m.singleActionLegs() {
		m.summariseLeg(a)
	}
	state := m.s
	state.Log.Entries, state.Log.Answers = nil, nil
	return LegRequest{Request: m.setup.Request, Claim: m.setup.Claim, Workflow: m.setup.Workflow, State: state}
}

// summariseLeg sets the action's summary to the steps that the leg covers if nothing stops it, where that is more than
// its first step.
func (m *Machine) summariseLeg(a *Action) {
	last := m.s.Status.CurrentStepIndex
	for last < m.steps() && (!m.pausesAt(last) || m.briefPauseAt(last)) {
		last++
	}
	if m.s.Stage != stageSteps && m.s.Stage != stageBegin || last == m.s.Status.CurrentStepIndex || a.Halts() ||
		m.s.Recheck != recheckNone {
		return
	}
	a.Summary = fmt.Sprintf("steps %d to %d of %d: pods to %s", m.s.Status.CurrentStepIndex, last, m.steps(),
		m.setup.Spec.Strategy.Steps[last-1].Replicas.String())
}

// deepCopy returns a state that shares nothing with s.
func deepCopy(s State) (c State) {
	raw, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	if err != nil {
		panic(fmt.Sprintf("the state of a rollout does not survive JSON: %v", err)) // the state is sent as JSON anyway
	}
	return c
}

// LegEnd is how a leg ended: its parts, and whether the action after them was stopped or failed.
type LegEnd struct {
	LegResult
	Stopped bool
	Failure *Failure
	// Action is the Key of the action that has used SpentSeconds; "": the one after the parts.
	Action string
}

// Trial returns a copy of the machine, inside of the running action, on which a command can be tried: what the copy
// refuses need not stop the action. A command for a later step is tried as one for the current step, since a leg may
// have reached that step.
func (m *Machine) Trial(running Action, c rollout.Command) *Machine {
	trial := ResumeMachine(m.setup, deepCopy(m.s))
	trial.Start(running)
	if c.Step > trial.s.Status.CurrentStepIndex && !m.singleActionLegs() {
		trial.s.Status.CurrentStepIndex = min(c.Step, trial.steps())
	}
	return trial
}

// EndLeg takes in what a leg has done.
func (m *Machine) EndLeg(end LegEnd, now time.Time) {
	l := &Leg{machine: m, matches: true}
	for _, p := range end.Parts {
		p.From, p.At = earlier(p.From, now), earlier(p.At, now)
		l.replay(p)
	}
	if !l.matches || end.Unknown {
		l.lose()
	}
	m.restoreAfterLeg(end, now)
}

// loseLeg prepares for the repetition of a leg of which more was done than is known. Its actions are level-based, and
// three rules make them safe in the states of later steps. What the leg may have pinned or routed counts as such, so
// that a rollback restores it before the first pod. The pods are inspected before a Service is pinned to the stable
// ones: none may be left. A step that a later one has followed makes no routes (madeBefore): traffic would go back to
// stable pods that were replaced. Under a Rollout object a leg has one action; while the step waits for an approval a
// leg makes no later step; and a leg that finalises only restores.
func (m *Machine) loseLeg() {
	if m.s.Stage == stageFinal {
		return
	}
	m.s.MoveStarted, m.s.PodsUnsettled = true, true
	st := m.setup.Spec.Strategy
	if m.singleActionLegs() || !st.HasTraffic() || m.s.Ending != rollout.EndNone || m.s.Stage == stageAdopt {
		return
	}
	m.s.Routed = maybe
	if m.s.Status.CurrentStepState == rollout.StatePaused && m.pauses() && m.s.ApprovedVisit != m.s.Visit &&
		m.step().PauseSeconds == nil {
		return
	}
	if m.s.RepeatsSteps, m.s.ChangeObserved = true, true; !st.DisableGenerateCanaryService {
		m.s.Pinned, m.s.CanaryServices = maybe, true
	}
}

// endsBeforeFinalising reports whether finalising comes next and is another leg's. A user who sends a rollback during
// the last step expects that it goes back through the steps, also if the leg has completed the step by then.
func (m *Machine) endsBeforeFinalising() bool {
	return m.setup.Spec.Policy.RollbackInBatches && m.s.Stage == stageFinal && m.s.Ending == rollout.EndSuccess
}

// restoreAfterLeg puts the machine into the state after the leg's last completed action, or inside the one that failed
// or was stopped.
func (m *Machine) restoreAfterLeg(end LegEnd, now time.Time) {
	if after := ResumeMachine(m.setup, deepCopy(m.s)); m.s.Stage == stageSteps {
		if after.Next(now); after.endsBeforeFinalising() {
			return
		}
	}
	a := m.Next(now)
	if end.Action != "" && end.Action != m.key(a) {
		end.SpentSeconds = 0
	}
	switch {
	case !a.OnParty():
	case end.Failure != nil:
		m.Start(a)
		end.Failure.SpentSeconds = max(end.Failure.SpentSeconds, end.SpentSeconds)
		m.Failed(*end.Failure, now)
	case end.Stopped:
		m.Start(a)
		m.Stopped()
		m.spend(a, end.SpentSeconds)
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
