package machine

import (
	"fmt"
	"time"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// Done takes what an action's activity answered. What it found out counts in any case; the way goes on only if the direction is still the same.
func (m *Machine) Done(r Result, now time.Time) {
	a := *m.running
	m.running, m.interrupted = nil, false
	m.c.Away, m.c.AwayCount, m.c.SpentSeconds, m.c.Stuck = "", 0, 0, ""
	same := a.epoch == m.epoch
	switch a.Kind {
	case ActBegin:
		m.begun(*r.Begin)
	case ActAskHolder:
		m.holderKnown(*r.Holder)
	case ActHold:
		shared := r.Hold.Shared
		m.c.Shared, m.c.SharedClaim = &shared, r.Hold.Claim
	case ActMove:
		if r.Move.Stuck != "" {
			m.stuck(*r.Move, same)
			return
		}
		m.c.Loose = !a.Move.Rest && !a.Move.Halt
		if a.Halts() {
			m.halted(*r.Move)
			return
		}
		m.takeNumbers(*r.Move)
		m.moved(a, same)
	case ActRoute:
		m.routed(a, *r.Route, same, now)
	case ActFinish:
		if a.Finish.Action != rollout.FinishAutoscalers { // the workload that had the numbers is gone
			m.takeNumbers(r.Finish.MoveResult)
		}
		m.finishedPods(a, same, now)
	case ActLeave:
		m.left(*r.Leave, same)
	case ActComplete:
		m.c.Stage = StageOver
	}
	if same && (a.Kind != ActRoute || !m.c.PutBackPods) {
		m.c.PutBack, m.c.PutBackPods = false, false
	}
}

// stuck notes that a new pod is in trouble. The Move goes on where it was: its deadline too.
func (m *Machine) stuck(r rollout.MoveResult, same bool) {
	m.c.Loose = true
	m.takeNumbers(r)
	if same {
		m.c.Stuck, m.c.SpentSeconds = r.Stuck, r.SpentSeconds
	}
}

// Stuck says that pods are waited for of which one is in trouble.
func (m *Machine) Stuck() bool { return m.c.Stuck != "" }

func (m *Machine) begun(r rollout.BeginResult) {
	s := &m.c.Status
	s.Replicas, s.ObservedWorkloadGeneration, m.c.UID = r.Replicas, r.Generation, r.UID
	if m.c.Unsettled = r.Unsettled; r.Unsettled != "" {
		m.c.Claimed = false
		return
	}
	if r.Adopted != nil {
		adopted := *r.Adopted
		m.c.Adopted, m.c.Stage, m.c.FinalMove, m.c.Leaving, m.c.StableHash = &adopted, StageAdopt, 0, LeavingAsk, r.StableHash
		if m.c.Ending == rollout.EndFrozen {
			m.c.Stage = StageFinal // it stays as it was found
		}
		return
	}
	if m.setup.BringHome { // nothing of an earlier release is there: nothing was claimed either
		m.c.Claimed, m.c.Note = false, r.Message
		m.close(rollout.PhaseRolledBack)
		return
	}
	s.StableRevision, m.c.StableHash, m.c.TakeOver = r.Stable, r.StableHash, ""
	if m.c.Ending != rollout.EndNone {
		m.c.Stage, m.c.FinalMove = StageFinal, 0
		return
	}
	m.c.Stage = StageHold
}

// holderKnown decides on the claim in the way: only a dead workflow's is taken over.
func (m *Machine) holderKnown(r workloadops.ClaimHolderResult) {
	holder := m.c.Holder
	m.c.Holder = ""
	if r.Dead {
		m.c.TakeOver = holder
		return
	}
	switch {
	case m.c.Stage != StageBegin:
		m.c.Trouble = &Trouble{Kind: failure.Claimed, Message: fmt.Sprintf("an object that routes to %s is held by %s: %s", m.workload(), holder, r.Reason)}
		m.c.Status.Phase = rollout.PhaseFailed
	case m.c.Ending == rollout.EndNone || m.c.Ending == rollout.EndNew || m.setup.BringHome:
		m.giveUp(fmt.Sprintf("%s is claimed by %s: %s; nothing was changed", m.workload(), holder, r.Reason))
	}
}

// giveUp closes a rollout that has done nothing.
func (m *Machine) giveUp(why string) {
	m.c.Claimed, m.c.Note = false, why
	m.close(rollout.PhaseFailed)
}

func (m *Machine) takeNumbers(r rollout.MoveResult) {
	s := &m.c.Status
	s.Replicas, s.CanaryReplicas, s.CanaryReadyReplicas = r.Replicas, r.Updated, r.UpdatedReady
	if r.Generation > 0 {
		s.ObservedWorkloadGeneration = r.Generation
	}
	if r.Canary != "" {
		s.CanaryRevision = r.Canary
	}
	if r.CanaryHash != "" {
		m.c.CanaryHash, s.PodTemplateHash = r.CanaryHash, r.CanaryHash
	}
	if r.Template != "" {
		m.c.Template = r.Template
	}
	m.c.Note = r.Message
}

// halted: the step is where it was. Of a step that was halted before anybody knew its new revision, the numbers are not known.
func (m *Machine) halted(r rollout.MoveResult) {
	if r.Canary != "" {
		m.takeNumbers(r)
	}
}

// SkipHalt leaves the pods as they are: a rollout that was begun by an earlier build goes on as that one did.
func (m *Machine) SkipHalt() { m.c.Loose = false }

func (m *Machine) moved(a Action, same bool) {
	if !same {
		return
	}
	checked := m.c.Check != CheckNone || a.Move.Look
	m.c.Check = CheckNone
	_, needed := m.before()
	switch {
	case m.routes() && needed: // the workload was scaled meanwhile to a size at which the Services have to select otherwise
		m.c.Status.CurrentStepState = rollout.StateBeforeUpgrade
	case checked:
	case m.routes() && m.c.PutBackPods: // the pods that its Services are to select are there again
		m.c.Status.CurrentStepState = rollout.StateBeforeUpgrade
	case m.routes():
		m.c.Status.CurrentStepState = rollout.StateTrafficRouting
	default:
		m.c.Status.CurrentStepState = rollout.StatePaused
	}
}

func (m *Machine) routed(a Action, r rollout.RouteResult, same bool, now time.Time) {
	if r.Modified && r.GraceSeconds > 0 {
		until := now.Add(time.Duration(r.GraceSeconds) * time.Second)
		if m.c.GraceUntil == nil || m.c.GraceUntil.Before(until) {
			m.c.GraceUntil = &until
		}
	}
	if a.shared {
		m.sharedDone(a)
		return
	}
	m.routeFacts(a)
	switch {
	case !same:
	case m.c.Stage == StageFinal || m.c.Stage == StageAdopt:
		m.c.FinalMove++
	case a.Route.Action == rollout.RouteEnsure:
		m.c.Status.CurrentStepState = rollout.StatePaused
	}
}

// sharedDone: the routes of the TrafficRouting are made, or given back.
func (m *Machine) sharedDone(a Action) {
	if a.Route.Action == rollout.RouteEnsure {
		m.c.SharedRouted = true
		return
	}
	m.c.Leaving = LeavingTell
}

func (m *Machine) routeFacts(a Action) {
	split := func(canary int32, matches []strategy.Match) {
		m.c.Status.Traffic = &rollout.TrafficStatus{CanaryWeight: canary, StableWeight: 100 - canary, Matches: matches}
	}
	switch a.Route.Action {
	case rollout.RoutePin:
		m.c.Pinned = Yes
	case rollout.RouteUnpin:
		m.c.Pinned = No
	case rollout.RouteEnsure:
		m.c.Routed = Yes
		if w := a.Route.Traffic.Weight; w != nil {
			split(*w, nil)
		} else {
			split(0, a.Route.Traffic.Matches)
		}
	case rollout.RouteToNew:
		m.c.Routed = Yes
		split(100, nil)
	case rollout.RouteToStable:
		m.c.Routed = No
		split(0, nil)
	case rollout.RouteRemoveCanary:
		m.c.CanaryServices = false
	}
}

// finishedPods goes on in the table. A release that was already through when somebody turned the rollout round cannot be taken back.
func (m *Machine) finishedPods(a Action, same bool, now time.Time) {
	switch {
	case same:
		m.c.FinalMove++
	case a.Finish.Action == rollout.FinishRelease || a.Finish.Action == rollout.FinishResumeAndRelease:
		if m.c.Adopted == nil {
			m.policyDecides(rollout.VerbStop, "the release was already through: it stays as it is", now)
			m.c.Ending = a.ending
			m.close(a.ending.Phase())
		}
	}
}

func (m *Machine) left(r rollout.LeaveTrafficResult, same bool) {
	if !same {
		return
	}
	if m.c.Leaving == LeavingAsk && r.Restore {
		if len(r.Shared.Routings) > 0 || m.c.Shared == nil { // a TrafficRouting that was deleted no longer says what it asked
			shared := r.Shared
			m.c.Shared = &shared
		}
		m.c.SharedClaim, m.c.Leaving = r.Claim, LeavingRestore
		if len(m.c.Shared.Routings) > 0 {
			return
		}
	}
	m.nextMove()
}

func (m *Machine) nextMove() {
	m.c.FinalMove++
	m.c.Leaving = LeavingAsk
}

// Stopped says that the action was stopped half way, as Interrupts asked.
func (m *Machine) Stopped() {
	m.running, m.interrupted, m.c.Stuck = nil, false, ""
}

// Observed takes a hint that somebody else has changed the workload, whatever is being done: it is looked at when the step rests. Several hints are one look.
func (m *Machine) Observed() {
	if m.c.Moved && (m.c.Stage == StageSteps || m.c.Stage == StageBack) {
		m.c.Observed = true
	}
}

// lookAgain has the pods looked at when a step rests and a hint came meanwhile.
func (m *Machine) lookAgain() bool {
	if !m.c.Observed || m.c.Check != CheckNone || m.c.Status.CurrentStepState != rollout.StatePaused {
		return false
	}
	m.c.Observed, m.c.Check = false, CheckLook
	return true
}

// Recorded says that the record was written, or that it never will be.
func (m *Machine) Recorded(now time.Time) { m.Done(Result{}, now) }
