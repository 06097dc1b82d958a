// Package machine decides what a rollout does next, and why: from its strategy, its activities' answers and people's commands.
package machine

import (
	"fmt"
	"time"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// Asked is a release as it was asked. Recorded histories carry it, as part of the workflow's input.
type Asked struct {
	Spec strategy.Spec `json:"spec"`
	// Record is the name of the release's ReleaseRecord, which is completed at the end.
	Record    string    `json:"record"`
	CreatedAt time.Time `json:"createdAt"`
	// Actor, Reason and Via are who started it, why, and through which front door.
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
	Via    string `json:"via,omitempty"`
	// UnreachableBudgetSeconds is how long the party's cluster may be out of reach before the status says so.
	UnreachableBudgetSeconds int64 `json:"unreachableBudgetSeconds"`
	// Object is the Rollout object that asks for it, and shows how far it is; nil when there is none.
	Object *rollout.ObjectRef `json:"object,omitempty"`
	// Confirm is why somebody has to approve it before anything is done; "": nobody has to.
	Confirm string `json:"confirm,omitempty"`
	// BringHome only brings a frozen split home, to the stable version: the rollback of a rollout that was stopped to frozen.
	BringHome bool `json:"bringHome,omitempty"`
	// Revision is the release's number in the history of its name; 0 in releases of an earlier build.
	Revision int64 `json:"revision,omitempty"`
	// Task is the task of a plan that it belongs to; "": none.
	Task string `json:"task,omitempty"`
	// Foreseen is the new pod template as the preflight found it; nil where that is not known.
	Foreseen *rollout.Foreseen `json:"foreseen,omitempty"`
}

// Setup is what a rollout is told at its start and never changes: what was asked, the claim on the workload, whose run is the first of the
// workflow's chain, and the workflow in which it runs. Its record stands for this release within the chain.
type Setup struct {
	Asked
	Claim    string
	Workflow plan.WorkflowRef
	// BriefRests has a leg wait out rests that are over within shortRest, OneWrite has the claim and the first of the Move be one write, and whatever ends the
	// rollout stop its first leg: runs of earlier builds know neither.
	BriefRests, OneWrite bool
}

// Machine is the state machine of a rollout: what is to be done next and why, what results, failures and verbs change.
// It knows no clock, no workflow and no cluster. Everything that it has to remember is its State.
type Machine struct {
	setup Setup
	s     State
	// epoch is raised by whatever changes the direction: an action of an earlier epoch tells facts, but moves nothing on.
	epoch int
	// running is the action that is being carried out, interrupted whether it is to be stopped.
	running     *Action
	interrupted bool
	// leg is the leg that is gone now, of which running is the first action; nil: none.
	leg *goingLeg
}

// NewMachine begins a rollout.
func NewMachine(setup Setup, now time.Time) *Machine {
	spec := setup.Spec
	m := &Machine{setup: setup, s: State{Stage: stageBegin, BriefRests: setup.BriefRests && setup.Object == nil,
		OneWrite: setup.OneWrite && setup.Object == nil}}
	m.s.Status = rollout.Status{
		Party: spec.Workload().PartyOrDefault(), Namespace: spec.Namespace, Name: spec.Name, WorkloadRef: spec.WorkloadRef,
		Style: spec.Strategy.Style, Phase: rollout.PhaseProgressing, Reason: "about to begin",
		Steps: stepStatuses(spec.Strategy.Steps), RolloutID: spec.RolloutID, Images: spec.Change.ImagesOf(), Task: setup.Task,
		CreatedAt: setup.CreatedAt, LastUpdateTime: now, Record: setup.Record, Revision: setup.Revision, Undo: spec.Undo,
	}
	if spec.Change.Package != nil {
		m.s.Status.Package = spec.Change.Package.SHA256
	}
	m.s.Status.Workflow = &setup.Workflow
	verb, what := began(setup.Asked)
	m.note(rollout.Command{Verb: verb, Actor: setup.Actor, Via: setup.Via, Reason: setup.Reason}, audit.Accepted, what, now)
	if setup.BringHome {
		m.s.Ending = rollout.EndRollback
	}
	if spec.Strategy.Paused && !setup.BringHome {
		m.s.Status.Paused, m.s.PausedBy, m.s.PausedByObject = true, "its strategy says paused", setup.Object != nil
	}
	m.enterStep(1, now)
	m.s.Unopened = m.keepsTimes()
	return m
}

// began is how the record of what was decided begins.
func began(asked Asked) (verb rollout.Verb, what string) {
	switch undo := asked.Spec.Undo; {
	case asked.BringHome:
		return rollout.VerbRollback, "what an earlier release left on the workload is brought home"
	case undo != nil:
		return rollout.VerbUndo, "the " + undo.String() + " was started: " + strategy.ImageList(asked.Spec.Change.ImagesOf())
	}
	return rollout.VerbStart, "the rollout was started"
}

// ResumeMachine goes on where a run that continued as new was. Nothing was being carried out then.
func ResumeMachine(setup Setup, state State) *Machine {
	m := &Machine{setup: setup, s: state}
	if state.Strategy != nil {
		m.setup.Spec.Strategy = *state.Strategy
	}
	m.s.Status.Workflow = &setup.Workflow
	return m
}

// State is the machine's state. It may be taken while nothing is being carried out.
func (m *Machine) State() State { return m.s }

// Status is the rollout as it is now.
func (m *Machine) Status() rollout.Status {
	s := m.s.Status
	s.History = m.s.Log.Entries
	return s
}

// Next says what to do now. It is not asked while an activity is being carried out. Rests end by the clock: it is asked again at Until.
func (m *Machine) Next(now time.Time) Action {
	for {
		if a, ready := m.decide(now); ready {
			a.epoch, a.ending = m.epoch, m.s.Ending
			a.NoPickUpTimeout = m.s.Unreachable != "" && a.party()
			m.explain(a, now)
			return a
		}
	}
}

// Start notes that an action is being carried out.
func (m *Machine) Start(a Action) {
	m.running, m.interrupted = &a, false
	switch a.Kind {
	case ActBegin:
		m.s.Claimed = true
	case ActMove:
		m.s.Moved, m.s.PodsUnsettled = true, true
	case ActFinish:
		m.s.Moved = m.s.Moved || a.Finish.To == rollout.SideNew
	case ActRoute:
		m.startRoute(a)
	}
}

func (m *Machine) startRoute(a Action) {
	if a.shared {
		return
	}
	switch a.Route.Action {
	case rollout.RoutePin:
		m.s.Pinned = maybe
	case rollout.RouteUnpin:
		if m.s.Pinned != no {
			m.s.Pinned = maybe
		}
	case rollout.RouteEnsure, rollout.RouteToNew:
		m.s.Routed = maybe
		m.s.CanaryServices = !a.Route.NoCanary
	}
}

// Interrupts says whether the action that is being carried out is to be stopped, since something else is to be done now.
func (m *Machine) Interrupts() bool { return m.running != nil && m.interrupted }

// Over says that nothing is left to be done.
func (m *Machine) Over() bool { return m.s.Stage == stageOver }

// Completing says that nothing is left but the record.
func (m *Machine) Completing() bool { return m.s.Stage == stageComplete }

// Superseded says whether a newer release takes this one's place when it is over.
func (m *Machine) Superseded() bool { return m.s.Superseding }

// decide is one round of Next: an action, or a change of state after which it is asked again.
func (m *Machine) decide(now time.Time) (Action, bool) {
	switch {
	case m.s.Stage == stageOver && m.s.Superseding:
		return Action{Kind: ActSupersede}, true
	case m.s.Stage == stageOver:
		return Action{Kind: ActClose}, true
	case m.s.Stage == stageComplete:
		return Action{Kind: ActComplete, Summary: "write the record"}, true
	case m.s.Trouble != nil:
		if a, needed := m.makeSafe(); needed {
			return a, true
		}
		return m.held(), true
	case m.s.Redeclared != "" && m.s.Ending != rollout.EndDetached:
		if m.s.PodsUnsettled && m.inSteps() {
			return m.halt(m.s.Redeclared), true
		}
		return m.redeclared(), true
	case m.s.AgainAt != nil && now.Before(*m.s.AgainAt):
		return Action{Kind: ActRest, Until: m.s.AgainAt, Summary: "before the party is tried again", waits: rollout.WaitParty,
			why: m.unreachableReason()}, true
	}
	m.s.AgainAt = nil
	if m.s.Holder != "" {
		return Action{Kind: ActAskHolder, Summary: "ask whether the claim's holder is alive", waits: rollout.WaitParty,
			Holder: &workloadops.ClaimHolderRequest{Claim: m.s.Holder},
			why: fmt.Sprintf("%s: %s holds what this release needs: asking whether it is still at work", m.place(),
				workloadops.Told(m.setup.Claim, m.s.Holder))}, true
	}
	a, ready := m.onStage(now)
	if !ready || !m.needsGrace(a, now) {
		return a, ready
	}
	return Action{Kind: ActRest, Until: m.s.GraceUntil, Summary: "routes take effect", waits: rollout.WaitTraffic,
		why: fmt.Sprintf("%s: the changed routes are left to take effect until %s", m.place(), clock(*m.s.GraceUntil))}, true
}

// needsGrace says whether changed routes have to take effect first. A rollback's first write of routes, and a halt, make safe: they go on.
func (m *Machine) needsGrace(a Action, now time.Time) bool {
	if m.s.GraceUntil == nil {
		return false
	}
	if !now.Before(*m.s.GraceUntil) {
		m.s.GraceUntil = nil
		return false
	}
	if a.Kind == ActRest && a.Until == nil { // it waits anyway: the time is looked at again before anything is done
		return false
	}
	rescue := a.Kind == ActRoute && a.Route.Action == rollout.RouteToStable && m.s.Ending == rollout.EndRollback
	return !rescue && !a.Halts() && (a.Activity() || a.Until.Before(*m.s.GraceUntil))
}

func (m *Machine) onStage(now time.Time) (Action, bool) {
	switch m.s.Stage {
	case stageBegin:
		if m.asksFirst() {
			return m.askFirst(), true
		}
		if a, held := m.beginsLater(now); held {
			return a, true
		}
		return m.begin()
	case stageHold:
		return m.hold()
	case stageSteps, stageBack:
		return m.throughSteps(now)
	default: // stageAdopt, stageFinal
		return m.finalise(now)
	}
}

// begin claims the workload, over the claim of a dead workflow where need be.
func (m *Machine) begin() (Action, bool) {
	forward := m.s.Ending == rollout.EndNone || m.s.Ending == rollout.EndNew
	if !m.s.Claimed && (m.s.Ending == rollout.EndFrozen || !m.setup.BringHome && !forward) {
		m.close(m.s.Ending.Phase()) // nothing was done: nothing is to be undone
		return Action{}, false
	}
	request := &rollout.BeginRequest{Subject: m.subject(), Strategy: m.setup.Spec.Strategy, Change: m.setup.Spec.Change,
		Adopt: m.setup.BringHome}
	if m.setup.Spec.Policy.SettleSeconds > 0 {
		request.Unsettled = rollout.UnsettledTell
	}
	a := Action{Kind: ActBegin, Begin: request, Summary: "claim " + m.workload(), waits: rollout.WaitParty,
		why: "claiming " + m.workload() + " before anything is changed"}
	if m.s.Unsettled != "" && forward { // it is claimed when its own update is done; whoever ends the release meanwhile stops the wait
		request.Unsettled, request.DeadlineSeconds = rollout.UnsettledWait, m.setup.Spec.Policy.SettleSeconds
		a.Summary, a.waits = "wait for the update of "+m.workload()+" to finish", rollout.WaitPods
		a.why = fmt.Sprintf("%s; the release begins by itself when that is done, and ends if it takes longer than %s",
			m.s.Unsettled, time.Duration(request.DeadlineSeconds)*time.Second)
	}
	return a, true
}

// hold takes part in the shared TrafficRouting: its routes are made once, before the first pod moves.
func (m *Machine) hold() (Action, bool) {
	name := m.setup.Spec.Strategy.TrafficRoutingRef
	switch {
	case name == "" || m.s.SharedRouted:
		m.s.Stage = stageSteps
		return Action{}, false
	case m.s.Shared == nil:
		return m.takePart(name), true
	default:
		return m.sharedRoute(rollout.RouteEnsure, "routes of TrafficRouting "+name), true
	}
}

func (m *Machine) holding(name string) *rollout.HoldTrafficRequest {
	return &rollout.HoldTrafficRequest{Namespace: m.setup.Spec.Namespace, Name: name, Holder: m.setup.Claim}
}

func (m *Machine) subject() rollout.Subject {
	s := rollout.Subject{Workload: m.setup.Spec.Workload(), Name: m.setup.Spec.Name, UID: m.s.UID, Claim: m.setup.Claim,
		TakeOver: m.s.TakeOver, DeadlineSeconds: m.setup.Spec.Policy.StepDeadlineSeconds, SpentSeconds: m.s.SpentSeconds}
	if m.s.Unreachable == "" {
		s.UnreachableBudgetSeconds = m.setup.UnreachableBudgetSeconds
	}
	return s
}

// close ends the rollout in that phase: what is left is the record.
func (m *Machine) close(phase rollout.Phase) {
	m.s.Stage, m.s.Closing = stageComplete, phase
}

func (m *Machine) workload() string {
	w := m.setup.Spec
	return fmt.Sprintf("%s %s/%s", w.WorkloadRef.Kind, w.Namespace, w.WorkloadRef.Name)
}

// inSteps says whether it is at a step, on its way or on its way back.
func (m *Machine) inSteps() bool { return m.s.Stage == stageSteps || m.s.Stage == stageBack }

// over says that nothing but the record is left.
func (m *Machine) over() bool { return m.s.Stage == stageComplete || m.s.Stage == stageOver }

// reached forgets what kept the party from answering, and what its last answers said of a pod in trouble.
func (m *Machine) reached() {
	m.s.Unreachable, m.s.UnreachableCount, m.s.SpentSeconds, m.s.Stuck = "", 0, 0, ""
}
