// Package machine decides what a rollout does next, and why, from its strategy, the results of its activities and the
// commands of users.
package machine

import (
	"fmt"
	"maps"
	"time"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// Request is a release as it was requested. Recorded histories carry it, as part of the workflow's input.
type Request struct {
	Spec strategy.Spec `json:"spec"`
	// Record is the name of the release's ReleaseRecord, which is completed at the end.
	Record    string    `json:"record"`
	CreatedAt time.Time `json:"createdAt"`
	// Actor, Reason and Via are who started it, why, and through which front door (API, CLI, Temporal, kubectl).
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
	Via    string `json:"via,omitempty"`
	// UnreachableBudgetSeconds is how long the party's cluster may be unreachable before the status reports it.
	UnreachableBudgetSeconds int64 `json:"unreachableBudgetSeconds"`
	// Object is the Rollout object that requests the release and shows its progress; nil: none.
	Object *rollout.ObjectRef `json:"object,omitempty"`
	// ConfirmReason is why an approver has to confirm the release before anything is done; "": no confirmation is
	// needed.
	ConfirmReason string `json:"confirm,omitempty"`
	// RollBackFrozen only rolls a frozen split back to the stable version: the rollback of a rollout that was stopped
	// to frozen.
	RollBackFrozen bool `json:"bringHome,omitempty"`
	// Revision is the release's number in the history of its name.
	Revision int64 `json:"revision,omitempty"`
	// Task is the task of a plan that the release belongs to; "": none.
	Task string `json:"task,omitempty"`
	// Predicted is the new pod template as the preflight predicted it; nil: unknown.
	Predicted *rollout.PredictedTemplate `json:"foreseen,omitempty"`
	// Served is the revision that the newest Healthy record names; nil unless no pod shows which one is stable.
	Served *strategy.Revision `json:"served,omitempty"`
}

// Setup is what never changes during a rollout, except that Replan replaces the strategy: the request, the claim on the
// workload, and the workflow that runs it. The claim names the first run of the workflow's chain of runs; the record
// identifies this release within that chain.
type Setup struct {
	Request
	Claim    string
	Workflow audit.WorkflowRef
}

// Machine is the state machine of a rollout: it decides what to do next and why, and takes in results, failures and
// verbs. It has no clock, no workflow and no cluster. Everything that it has to remember is in its State.
type Machine struct {
	setup Setup
	s     State
	// running is the action that is being executed. Commands and hints are taken in before or after it, never meanwhile.
	running *Action
}

// NewMachine starts a rollout.
func NewMachine(setup Setup, now time.Time) *Machine {
	spec := setup.Spec
	m := &Machine{setup: setup, s: State{Stage: stageBegin}}
	m.s.Status = rollout.Status{
		Party: spec.Workload().PartyOrDefault(), Namespace: spec.Namespace, Name: spec.Name,
		WorkloadRef: spec.WorkloadRef,
		Style:       spec.Strategy.Style, Phase: rollout.PhaseProgressing, Reason: "about to begin",
		Steps: stepStatuses(spec.Strategy.Steps), RolloutID: spec.RolloutID, Images: spec.Change.ImagesOf(),
		Task:      setup.Task,
		CreatedAt: setup.CreatedAt, LastUpdateTime: now, Record: setup.Record, Revision: setup.Revision,
		Undo: spec.Undo,
	}
	if spec.Change.Package != nil {
		m.s.Status.Package = spec.Change.Package.SHA256
	}
	m.s.Status.Workflow = &setup.Workflow
	verb, what := startEntry(setup.Request)
	m.note(rollout.Command{Verb: verb, Actor: setup.Actor, Via: setup.Via, Reason: setup.Reason}, audit.Accepted, what,
		now)
	if setup.RollBackFrozen {
		m.s.Ending = rollout.EndRollback
	}
	if spec.Strategy.Paused && !setup.RollBackFrozen {
		m.s.Status.Paused, m.s.PausedBy, m.s.PausedByObject = true, "its strategy says paused", setup.Object != nil
	}
	m.enterStep(1, now)
	m.s.WindowPending = m.hasTimes()
	return m
}

// startEntry returns the first entry of the audit log.
func startEntry(asked Request) (verb rollout.Verb, what string) {
	switch undo := asked.Spec.Undo; {
	case asked.RollBackFrozen:
		return rollout.VerbRollback, "rolling back what an earlier release left on the workload"
	case undo != nil:
		return rollout.VerbUndo, "the " + undo.String() + " was started: " +
			strategy.ImageList(asked.Spec.Change.ImagesOf())
	}
	return rollout.VerbStart, "the rollout was started"
}

// ResumeMachine continues from the state of a run that continued as new. No action was running then.
func ResumeMachine(setup Setup, state State) *Machine {
	m := &Machine{setup: setup, s: state}
	if state.EditedStrategy != nil {
		m.setup.Spec.Strategy = *state.EditedStrategy
	}
	m.s.Status.Workflow = &setup.Workflow
	return m
}

// State returns the machine's state. It may be called only while no action is running.
func (m *Machine) State() State { return m.s }

// Status returns the current status of the rollout, with its history.
func (m *Machine) Status() rollout.Status {
	s := m.s.Status
	s.History, s.RefusalsDropped = m.s.Log.Entries, m.s.Log.RefusalsDropped
	return s
}

// Next returns the next action. It must not be called while an activity is running. A wait with an Until ends by the
// clock: Next is called again then.
func (m *Machine) Next(now time.Time) Action {
	for {
		if a, ready := m.decide(now); ready {
			a.NoPickUpTimeout = m.s.Unreachable != "" && a.OnParty()
			if subject, key := a.deadline(); subject != nil {
				subject.SpentSeconds = m.s.Spent[key]
			}
			m.explain(a, now)
			return a
		}
	}
}

// Start records that an action is being executed. A leg starts its actions itself.
func (m *Machine) Start(a Action) {
	m.running = &a
	switch a.Kind {
	case ActBegin:
		m.s.MayHoldClaim = true
	case ActMove:
		m.s.MoveStarted, m.s.PodsUnsettled = true, true
	case ActFinish:
		m.s.MoveStarted = m.s.MoveStarted || a.Finish.To == rollout.SideNew
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

// Finished reports whether nothing is left to do, the record included.
func (m *Machine) Finished() bool { return m.s.Stage == stageDone }

// Completing reports whether only the record is left to write.
func (m *Machine) Completing() bool { return m.s.Stage == stageComplete }

// Superseded reports whether a newer release replaces this one when it has ended.
func (m *Machine) Superseded() bool { return m.s.Superseding }

// decide is one round of Next: it returns an action, or false after a change of state, and is then called again. The
// order of the cases is the priority.
func (m *Machine) decide(now time.Time) (Action, bool) {
	switch {
	case m.s.Stage == stageDone && m.s.Superseding:
		return Action{Kind: ActSupersede}, true
	case m.s.Stage == stageDone:
		return Action{Kind: ActClose}, true
	case m.s.Stage == stageComplete:
		return Action{Kind: ActComplete, Summary: "write the record"}, true
	case m.s.Trouble != nil:
		if a, needed := m.makeSafe(); needed {
			return a, true
		}
		return m.awaitOperator(), true
	case m.s.Redeclared != "" && m.s.Ending != rollout.EndDetached:
		if m.s.PodsUnsettled && m.inSteps() {
			return m.halt(m.s.Redeclared), true
		}
		return m.awaitRedeclared(), true
	case m.s.RetryAt != nil && now.Before(*m.s.RetryAt):
		return Action{Kind: ActWait, Until: m.s.RetryAt, Summary: "wait before the party is retried",
			waitKind: rollout.WaitParty, reason: m.unreachableReason()}, true
	}
	m.s.RetryAt = nil
	if m.s.BlockingClaim != "" {
		return Action{Kind: ActAskHolder, Summary: "check whether the claim's holder is alive",
			waitKind: rollout.WaitParty, Holder: &workload.ClaimHolderRequest{Claim: m.s.BlockingClaim},
			reason: fmt.Sprintf("%s: %s holds a claim that this release needs: checking whether it is still "+
				"running", m.position(), workload.HolderName(m.setup.Claim, m.s.BlockingClaim))}, true
	}
	a, ready := m.onStage(now)
	if !ready || !m.needsGrace(a, now) {
		return a, ready
	}
	return Action{Kind: ActWait, Until: m.s.GraceUntil, Summary: "wait for routes to take effect",
		waitKind: rollout.WaitTraffic, reason: fmt.Sprintf("%s: waiting until %s for the changed routes to take effect",
			m.position(), phrase.Time(*m.s.GraceUntil))}, true
}

// needsGrace reports whether an action has to wait until changed routes have taken effect. A rollback that restores the
// routes, and a halt, do not wait: they make the rollout safe.
func (m *Machine) needsGrace(a Action, now time.Time) bool {
	if m.s.GraceUntil == nil {
		return false
	}
	if !now.Before(*m.s.GraceUntil) {
		m.s.GraceUntil = nil
		return false
	}
	// it waits anyway: the grace period is checked again before the next action
	if a.Kind == ActWait && a.Until == nil {
		return false
	}
	rescue := a.Kind == ActRoute && a.Route.Action == rollout.RouteToStable && m.s.Ending == rollout.EndRollback
	return !rescue && !a.Halts() && (a.Activity() || a.Until.Before(*m.s.GraceUntil))
}

func (m *Machine) onStage(now time.Time) (Action, bool) {
	switch m.s.Stage {
	case stageBegin:
		if m.needsConfirmation() {
			return m.awaitConfirmation(), true
		}
		if a, held := m.awaitFirstWindow(now); held {
			return a, true
		}
		return m.begin()
	case stageJoin:
		return m.joinSharedTraffic()
	case stageSteps, stageRollback:
		return m.advanceStep(now)
	default: // stageAdopt, stageFinal
		return m.finalise(now)
	}
}

// begin claims the workload, and replaces the claim of a dead workflow if there is one.
func (m *Machine) begin() (Action, bool) {
	forward := m.s.Ending == rollout.EndNone || m.s.Ending == rollout.EndNew
	if !m.s.MayHoldClaim && (m.s.Ending == rollout.EndFrozen || !m.setup.RollBackFrozen && !forward) {
		m.close(m.s.Ending.Phase()) // nothing was done, so there is nothing to undo
		return Action{}, false
	}
	request := &rollout.BeginRequest{Subject: m.subject(), Strategy: m.setup.Spec.Strategy, Change: m.setup.Spec.Change,
		Adopt: m.setup.RollBackFrozen, AskSaved: !m.setup.RollBackFrozen, Served: m.setup.Served}
	if m.setup.Spec.Policy.SettleSeconds > 0 {
		request.Unsettled = rollout.UnsettledReport
	}
	a := Action{Kind: ActBegin, Begin: request, Summary: "claim " + m.workloadName(), waitKind: rollout.WaitParty,
		reason: "claiming " + m.workloadName() + " before anything is changed"}
	// the claim waits for the workload's own update; a command that ends the release stops the wait
	if m.s.WorkloadUpdating != "" && forward {
		request.Unsettled, request.DeadlineSeconds = rollout.UnsettledWait, m.setup.Spec.Policy.SettleSeconds
		a.Summary, a.waitKind = "wait for the update of "+m.workloadName()+" to finish", rollout.WaitPods
		a.reason = fmt.Sprintf(
			"%s; the release begins by itself when that is done, and ends if it takes longer than %s",
			m.s.WorkloadUpdating, time.Duration(request.DeadlineSeconds)*time.Second)
	}
	return a, true
}

// joinSharedTraffic joins the shared TrafficRouting. Its routes are made once, before the first pod moves.
func (m *Machine) joinSharedTraffic() (Action, bool) {
	name := m.setup.Spec.Strategy.TrafficRoutingRef
	switch {
	case name == "" || m.s.SharedRouted || m.onlyNumbers():
		m.s.Stage = stageSteps
		return Action{}, false
	case m.s.Shared == nil:
		return m.joinRequest(name), true
	default:
		return m.sharedRoute(rollout.RouteEnsure, "routes of TrafficRouting "+name), true
	}
}

func (m *Machine) holdRequest(name string) *rollout.HoldTrafficRequest {
	return &rollout.HoldTrafficRequest{Namespace: m.setup.Spec.Namespace, Name: name, Holder: m.setup.Claim}
}

func (m *Machine) subject() rollout.Subject {
	s := rollout.Subject{Workload: m.setup.Spec.Workload(), Name: m.setup.Spec.Name, UID: m.s.WorkloadUID,
		Claim: m.setup.Claim, TakeOver: m.s.TakeOver,
		Ended: m.s.TakeOverEnded, DeadlineSeconds: m.setup.Spec.Policy.StepDeadlineSeconds}
	if m.s.Unreachable == "" {
		s.UnreachableBudgetSeconds = m.setup.UnreachableBudgetSeconds
	}
	return s
}

// close ends the rollout in this phase. Only the record is left to write.
func (m *Machine) close(phase rollout.Phase) {
	m.s.Stage, m.s.FinalPhase = stageComplete, phase
}

func (m *Machine) workloadName() string {
	w := m.setup.Spec
	return fmt.Sprintf("%s %s/%s", w.WorkloadRef.Kind, w.Namespace, w.WorkloadRef.Name)
}

// inSteps reports whether the rollout is at a step, forward or of a rollback in batches.
func (m *Machine) inSteps() bool { return m.s.Stage == stageSteps || m.s.Stage == stageRollback }

// ended reports whether nothing but the record is left.
func (m *Machine) ended() bool { return m.s.Stage == stageComplete || m.s.Stage == stageDone }

// answered clears what the end of an action makes obsolete: why the party was unreachable, what the action had used of
// its deadline, and after a Move the pod that was in trouble.
func (m *Machine) answered(a Action) {
	m.s.answered()
	if a.Kind == ActMove {
		m.s.StuckPod = ""
	}
	_, key := a.deadline()
	m.s.Spent = maps.Clone(m.s.Spent) // a leg's request may share it
	delete(m.s.Spent, key)
}

// spend records how much of its deadline an unfinished action has used in all.
func (m *Machine) spend(a Action, seconds int64) {
	if _, key := a.deadline(); seconds > m.s.Spent[key] {
		spent := map[string]int64{}
		maps.Copy(spent, m.s.Spent)
		spent[key] = seconds
		m.s.Spent = spent
	}
}
