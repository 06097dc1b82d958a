package machine

import (
	"fmt"
	"time"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// Done takes the result of the running action.
func (m *Machine) Done(r Result, now time.Time) {
	a := *m.running
	m.running = nil
	m.answered(a)
	// If a retry of routes inspects the pods first, the routes have to be overwritten too.
	beforeRoutes := a.Kind == ActMove && m.s.Recheck == recheckMove &&
		m.s.Status.CurrentStepState == rollout.StateTrafficRouting
	switch a.Kind {
	case ActBegin:
		m.recordBegin(r.Begin)
	case ActAskHolder:
		m.resolveHolder(r.Holder)
	case ActJoinTraffic:
		m.s.Shared, m.s.SharedClaim = &r.Hold.Shared, r.Hold.Claim
	case ActMove:
		if r.Pods.Stuck != "" {
			m.recordStuckPod(a, r.Pods)
			return
		}
		m.recordPods(a, r.Pods)
		if a.Halts() {
			return
		}
		m.afterMove(a)
	case ActRoute:
		if a.restores {
			m.routesRestored(a, r.Route, now)
			return
		}
		m.afterRoute(a, r.Route, now)
	case ActFinish:
		if a.Finish.Action != rollout.FinishAutoscalers { // the workload was deleted, so the result has no numbers
			m.updateNumbers(r.Pods)
		}
		m.s.FinalMoveIndex++
		m.acceptRelease(r.Pods.Released)
	case ActLeaveTraffic:
		m.afterLeave(r.Leave)
	case ActAskWindow:
		m.recordWindow(r.Window)
	case ActComplete:
		m.s.Stage = stageDone
	}
	if !beforeRoutes && m.overwroteDrift(a) {
		m.clearOverwrite(a)
	}
}

// clearOverwrite records that an action has overwritten the drift.
func (m *Machine) clearOverwrite(a Action) {
	m.s.OverwriteDrift, m.s.DriftOnPods = false, false
	if a.Kind == ActRoute && a.Route.Action == rollout.RouteEnsure {
		m.s.OverwriteRouteDrift = false
	}
}

// overwroteDrift reports whether an action has overwritten the drift that a retry was to overwrite. A claim does not:
// the Move after it does.
func (m *Machine) overwroteDrift(a Action) bool {
	return a.Kind != ActBegin && (a.Kind != ActRoute || !m.s.DriftOnPods)
}

// recordPods records what a Move reports about the pods.
func (m *Machine) recordPods(a Action, r rollout.MoveResult) {
	// After a last step of all pods there is nothing to settle.
	m.s.PodsUnsettled = !a.Move.Settle && !a.Move.Halt &&
		(!a.Move.Native || m.s.Status.CurrentStepIndex < m.steps() || !m.stepRoutes())
	// A step that was halted before its new revision was known has no numbers.
	if !a.Halts() || r.Canary != "" {
		m.updateNumbers(r)
	}
}

// recordStuckPod records that a new pod is in trouble. The Move continues where it was, with the deadline that it had.
func (m *Machine) recordStuckPod(a Action, r rollout.MoveResult) {
	m.s.PodsUnsettled = true
	m.updateNumbers(r)
	m.s.StuckPod = r.Stuck
	m.spend(a, r.SpentSeconds)
}

// PodStuck reports whether the rollout waits for pods of which one is in trouble.
func (m *Machine) PodStuck() bool { return m.s.StuckPod != "" }

func (m *Machine) recordBegin(r rollout.BeginResult) {
	s := &m.s.Status
	s.Replicas, s.ObservedWorkloadGeneration, m.s.WorkloadUID = r.Replicas, r.Generation, r.UID
	if m.s.WorkloadUpdating = r.Unsettled; r.Unsettled != "" {
		m.s.MayHoldClaim = false
		return
	}
	if r.Adopted != nil {
		m.s.Adopted, m.s.Stage, m.s.FinalMoveIndex, m.s.Leaving, m.s.StableHash = r.Adopted, stageAdopt, 0, leavingAsk,
			r.StableHash
		if m.s.Ending == rollout.EndFrozen {
			m.s.Stage = stageFinal // it is left as found
		}
		return
	}
	if m.setup.RollBackFrozen { // no earlier release left anything, so nothing was claimed
		m.s.MayHoldClaim, m.s.LastMessage = false, r.Message
		m.close(rollout.PhaseRolledBack)
		return
	}
	s.StableRevision, m.s.StableHash, m.s.TakeOver, m.s.TakeOverEnded = r.Stable, r.StableHash, "", false
	s.StableTemplateDigest, s.StableImages = r.StableTemplate, r.StableImages
	s.StablePackage, m.s.OverHung = r.StablePackage, r.Over
	if r.TemplateWritten {
		m.s.MoveStarted, m.s.PodsUnsettled = true, true
	}
	m.s.AlreadyComplete = r.AlreadyComplete
	if r.AlreadyComplete && !m.onlyNumbers() && m.s.Ending == rollout.EndNone {
		m.s.Ending, s.Paused, m.s.PausedBy = rollout.EndSuccess, false, ""
	}
	m.noteEarlierRelease(r)
	if m.s.Ending != rollout.EndNone {
		m.s.Stage, m.s.FinalMoveIndex = stageFinal, 0
		return
	}
	m.s.Stage = stageJoin
}

// noteEarlierRelease ends the rollout with the new version if the workload that has just been claimed has its template
// already: a leg whose result was lost has released it.
func (m *Machine) noteEarlierRelease(r rollout.BeginResult) {
	p, back := m.setup.Predicted, m.s.Ending == rollout.EndRollback
	if p == nil || p.From == p.Template || p.UID != r.UID || p.Template != r.StableTemplate ||
		!back && m.s.Ending != rollout.EndNone {
		return
	}
	// it was released last: its routes were restored before
	m.s.AlreadyComplete, m.s.Ending, m.s.Status.Paused, m.s.PausedBy = true, rollout.EndSuccess, false, ""
	if back {
		m.s.ReleasedAs = rollout.SideNew
	}
}

// resolveHolder decides about a claim that blocks this release: only a dead workflow's claim is taken over.
func (m *Machine) resolveHolder(r workload.ClaimHolderResult) {
	holder := m.s.BlockingClaim
	m.s.BlockingClaim = ""
	if r.Dead {
		m.s.TakeOver, m.s.TakeOverEnded = holder, r.Ended
		return
	}
	switch {
	case m.s.Stage != stageBegin:
		m.s.Trouble = &trouble{Kind: failure.Claimed,
			Message: fmt.Sprintf("an object that routes to %s is held by %s: %s", m.workloadName(),
				workload.HolderName(m.setup.Claim, holder), r.Reason)}
		m.s.Status.Phase = rollout.PhaseFailed
	case m.s.Ending == rollout.EndNone || m.s.Ending == rollout.EndNew || m.setup.RollBackFrozen:
		m.giveUp(fmt.Sprintf("%s is claimed by %s: %s; nothing was changed", m.workloadName(),
			workload.HolderName(m.setup.Claim, holder), r.Reason))
	}
}

func (m *Machine) giveUp(why string) {
	m.s.MayHoldClaim, m.s.LastMessage = false, why
	m.close(rollout.PhaseFailed)
}

func (m *Machine) updateNumbers(r rollout.MoveResult) {
	s := &m.s.Status
	s.Replicas, s.CanaryReplicas, s.CanaryReadyReplicas = r.Replicas, r.Updated, r.UpdatedReady
	if r.Generation > 0 {
		s.ObservedWorkloadGeneration = r.Generation
	}
	if r.Canary != "" {
		s.CanaryRevision = r.Canary
	}
	if r.CanaryHash != "" {
		s.PodTemplateHash = r.CanaryHash
		// at the end it is the workload's own hash, but the routes select the pods that the steps created
		if m.s.Stage != stageFinal || m.s.CanaryHash == "" {
			m.s.CanaryHash = r.CanaryHash
		}
	}
	if r.Template != "" {
		s.TemplateDigest = r.Template
	}
	if len(r.Images) > 0 {
		s.Images = r.Images
	}
	m.s.NoStablePods = m.setup.Spec.Strategy.Style == strategy.StyleBlueGreen && r.Replicas > 0 &&
		r.Updated >= r.Replicas && r.StableReady == 0
	m.s.LastMessage = r.Message
}

func (m *Machine) afterMove(a Action) {
	checked := m.s.Recheck != recheckNone || a.Move.Inspect
	m.s.Recheck = recheckNone
	_, needed := m.prepareTraffic()
	switch {
	case checked && m.s.Status.CurrentStepState == rollout.StateBeforeUpgrade:
	case m.stepRoutes() && needed: // the workload was scaled to a size that needs other Service selectors
		m.s.Status.CurrentStepState = rollout.StateBeforeUpgrade
	case checked && m.stepRoutes() && m.misrouted():
		m.s.Status.CurrentStepState = rollout.StateTrafficRouting
	case checked:
	case m.stepRoutes() && m.s.DriftOnPods: // the pods that its Services select exist again
		m.s.Status.CurrentStepState = rollout.StateBeforeUpgrade
	case m.stepRoutes():
		m.s.Status.CurrentStepState = rollout.StateTrafficRouting
	default:
		m.s.Status.CurrentStepState = rollout.StatePaused
	}
}

// misrouted reports whether the routes do not match the pods: the party's worker restored them because no new pod was
// ready, or the workload was scaled to or from a size that has no new pod.
func (m *Machine) misrouted() bool {
	return m.s.Routed == maybe || (m.s.Routed == no) != (m.s.Status.CanaryReplicas == 0)
}

func (m *Machine) afterRoute(a Action, r rollout.RouteResult, now time.Time) {
	m.startGrace(r, now)
	switch {
	case a.shared && a.Route.Action == rollout.RouteEnsure:
		m.s.SharedRouted = true
		return
	case a.shared:
		m.s.Leaving = leavingReport
		return
	}
	m.recordRoutes(a, r)
	switch {
	case m.s.Stage == stageFinal || m.s.Stage == stageAdopt:
		m.s.FinalMoveIndex++
	case a.Route.Action == rollout.RouteEnsure:
		m.s.Status.CurrentStepState = rollout.StatePaused
	}
}

// startGrace gives changed routes time to take effect.
func (m *Machine) startGrace(r rollout.RouteResult, now time.Time) {
	if !r.Modified || r.GraceSeconds <= 0 {
		return
	}
	until := now.Add(time.Duration(r.GraceSeconds) * time.Second)
	if m.s.GraceUntil == nil || m.s.GraceUntil.Before(until) {
		m.s.GraceUntil = &until
	}
}

func (m *Machine) recordRoutes(a Action, r rollout.RouteResult) {
	split := func(done triState, canary int32, matches []strategy.Match) {
		m.s.Routed = done
		m.s.Status.Traffic = &rollout.TrafficStatus{CanaryWeight: canary, StableWeight: 100 - canary, Matches: matches,
			LeftOut: r.LeftOut}
	}
	switch a.Route.Action {
	case rollout.RoutePin:
		m.s.Pinned = yes
	case rollout.RouteUnpin:
		m.s.Pinned = no
	case rollout.RouteEnsure:
		m.s.LastTraffic, m.s.RepeatsSteps = &a.Route.Traffic, m.s.RepeatsSteps && a.restores
		if w := a.Route.Traffic.Weight; w != nil {
			split(yes, *w, nil)
		} else {
			split(yes, 0, a.Route.Traffic.Matches)
		}
	case rollout.RouteToNew:
		split(yes, 100, nil)
	case rollout.RouteToStable:
		split(no, 0, nil)
	case rollout.RouteRemoveCanary:
		m.s.CanaryServices = false
	}
}

func (m *Machine) afterLeave(r rollout.LeaveTrafficResult) {
	if m.s.Leaving == leavingAsk && r.Restore {
		if len(r.Shared.Routings) > 0 || m.s.Shared == nil { // a deleted TrafficRouting no longer has its routings
			m.s.Shared = &r.Shared
		}
		m.s.SharedClaim, m.s.Leaving = r.Claim, leavingRestore
		if len(m.s.Shared.Routings) > 0 {
			return
		}
	}
	m.nextFinalMove()
}

func (m *Machine) nextFinalMove() {
	m.s.FinalMoveIndex++
	m.s.Leaving = leavingAsk
}

// acceptRelease ends the rollout with the version that the workload runs, if the workload was released before with
// another than the ending wants: the result of that release was lost, and the command that reversed it came too late.
func (m *Machine) acceptRelease(as rollout.Side) {
	reversed := m.s.Ending == rollout.EndRollback || m.s.Ending == rollout.EndSuccess || m.s.Ending == rollout.EndNew
	if m.s.Stage != stageFinal || as == "" || !reversed { // the others leave the workload with what it declares
		return
	}
	m.s.ReleasedAs, m.s.RolledBackByTemplate = as, false
	m.s.Ending = rollout.EndSuccess
	if as == rollout.SideStable {
		m.s.Ending = rollout.EndRollback
	}
	m.s.FinalMoveIndex = len(m.finalMoves())
}

// Stopped records that the running action was stopped half way.
func (m *Machine) Stopped() { m.running = nil }
