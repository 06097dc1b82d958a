package machine

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

func (m *Machine) step() strategy.Step {
	return m.setup.Spec.Strategy.Steps[m.s.Status.CurrentStepIndex-1]
}

func (m *Machine) steps() int { return len(m.setup.Spec.Strategy.Steps) }

// enterStep enters a step, counted from 1. Each time is a new visit.
func (m *Machine) enterStep(n int, now time.Time) {
	s := &m.s.Status
	s.CurrentStepIndex, s.CurrentStepState = n, rollout.StateBeforeUpgrade
	m.s.Visit++
	m.s.clearForStep()
	s.Steps[n-1].StartedAt, s.Steps[n-1].FinishedAt = &now, nil
}

// goToStep goes back, or jumps, to a step. That step and those after it count as not made.
func (m *Machine) goToStep(n int, now time.Time) {
	for i := n - 1; i < m.steps(); i++ {
		m.s.Status.Steps[i].StartedAt, m.s.Status.Steps[i].FinishedAt = nil, nil
	}
	m.enterStep(n, now)
}

// advanceStep returns the next action of the current step: prepare the traffic, move the pods, route, pause.
func (m *Machine) advanceStep(now time.Time) (Action, bool) {
	s := &m.s.Status
	if !m.startInspection() {
		if a, needed := m.nextRouteRestore(); needed {
			return a, true
		}
	}
	switch {
	case m.s.Recheck != recheckNone:
		return m.move(m.s.Recheck == recheckInspect), true
	case s.Paused && m.s.PodsUnsettled:
		return m.halt("it is paused, " + m.s.PausedBy), true
	case s.Paused:
		return Action{Kind: ActWait, waitKind: rollout.WaitResume,
			reason: fmt.Sprintf("%s: paused, %s; resume continues it", m.position(), m.s.PausedBy)}, true
	// traffic goes back before the first pod does
	case m.s.Stage == stageRollback && m.setup.Spec.Strategy.HasTraffic() && m.s.Routed != no:
		return m.routeOnly(rollout.RouteToStable)
	case m.s.CountPending:
		return m.countNewPods()
	}
	switch s.CurrentStepState {
	case rollout.StateBeforeUpgrade:
		if a, needed := m.beforeStep(now); needed {
			return a, true
		}
		s.CurrentStepState = rollout.StateUpgrade
	case rollout.StateUpgrade:
		return m.move(false), true
	case rollout.StateTrafficRouting:
		if m.stepRoutes() && !m.madeBefore() {
			return m.routeStep()
		}
		s.CurrentStepState = rollout.StatePaused
	case rollout.StatePaused:
		return m.pauseStep(now)
	default:
		return m.nextStep(now)
	}
	return Action{}, false
}

// routeStep sends requests to the new pods, if there are any.
func (m *Machine) routeStep() (Action, bool) {
	switch {
	case m.s.Status.CanaryReplicas > 0:
		return m.route(rollout.RouteEnsure, m.step().DesiredTraffic()), true
	// the workload was scaled to a size that leaves no new pod to serve requests
	case m.s.Routed != no:
		return m.routeOnly(rollout.RouteToStable)
	}
	m.s.Status.CurrentStepState = rollout.StatePaused
	return Action{}, false
}

// madeBefore reports whether a leg with unknown result has made more than the current step, which does not pause: there
// are pods of a later one. Its routes, which a later step has replaced, are not made again.
func (m *Machine) madeBefore() bool {
	s := m.s.Status
	return m.s.RepeatsSteps && !m.pauses() && s.CanaryReplicas > strategy.Target(m.setup.Spec.Strategy.Style,
		m.step().Replicas, s.Replicas)
}

func (m *Machine) stepRoutes() bool {
	return m.s.Stage == stageSteps && m.routesTraffic() && m.step().Routes()
}

// prepareTraffic is what the Services and routes need before the step's pods move. The stable Service is pinned to the
// stable pods while some are to remain, and unpinned before the last of them is replaced. Everything is restored before
// a step that leaves traffic alone.
func (m *Machine) prepareTraffic() (Action, bool) {
	st := m.setup.Spec.Strategy
	switch {
	case m.s.Stage != stageSteps || !m.routesTraffic():
	case m.step().Routes() && st.DisableGenerateCanaryService:
	case m.step().Routes():
		takesAll := m.s.NoStablePods || st.Style == strategy.StylePartition && m.takesAllPods()
		switch {
		case takesAll && m.s.Pinned != no:
			return m.routeOnly(rollout.RouteUnpin)
		// after an edit of the workload its pods are restored first
		case !takesAll && m.s.Pinned != yes && !m.s.DriftOnPods:
			return m.routeOnly(rollout.RoutePin)
		}
	case m.s.Pinned != no:
		return m.routeOnly(rollout.RouteUnpin)
	case m.s.Routed != no:
		return m.routeOnly(rollout.RouteToStable)
	case m.s.CanaryServices:
		return m.routeOnly(rollout.RouteRemoveCanary)
	}
	return Action{}, false
}

// takesAllPods reports whether the step leaves no stable pod, or none is left. A share below 100 % leaves one, unless
// there is only one pod.
func (m *Machine) takesAllPods() bool {
	s := m.s.Status
	return strategy.Target(m.setup.Spec.Strategy.Style, m.step().Replicas, s.Replicas) >= s.Replicas ||
		s.Replicas > 0 && s.CanaryReplicas >= s.Replicas
}

// pauseStep is the pause of a step: for an approval, for a time, or none.
func (m *Machine) pauseStep(now time.Time) (Action, bool) {
	step := m.step()
	switch {
	case m.s.Promoted, m.skipsPause(), m.s.ApprovedVisit == m.s.Visit, step.PauseSeconds != nil &&
		*step.PauseSeconds <= 0:
		m.s.Status.CurrentStepState = rollout.StateReady
		return Action{}, false
	case step.PauseSeconds == nil:
		return m.awaitApproval(now)
	}
	if m.s.PauseUntil == nil {
		m.s.PauseUntil = new(now.Add(time.Duration(*step.PauseSeconds) * time.Second))
	}
	if now.Before(*m.s.PauseUntil) {
		return Action{Kind: ActWait, Until: m.s.PauseUntil, Summary: fmt.Sprintf("pause of %s", m.stepLabel()),
			waitKind: rollout.WaitTimer, reason: fmt.Sprintf("%s pauses until %s, then it continues by itself",
				m.stepLabel(), phrase.Time(*m.s.PauseUntil))}, true
	}
	m.note(rollout.Command{Verb: verbElapsed, Actor: "timer", Via: "policy"}, audit.Accepted,
		fmt.Sprintf("the pause of %s, %s, has elapsed: the rollout continues", m.stepLabel(),
			time.Duration(*step.PauseSeconds)*time.Second), now)
	m.s.Status.CurrentStepState = rollout.StateReady
	return Action{}, false
}

// skipsPause reports whether the current step needs no pause, as its last step at 100 % leaves nothing to review. A
// blue-green pauses there: the old version still exists.
func (m *Machine) skipsPause() bool { return m.skipsPauseAt(m.s.Status.CurrentStepIndex) }

func (m *Machine) skipsPauseAt(n int) bool {
	st := m.setup.Spec.Strategy
	return st.Style != strategy.StyleBlueGreen && n == m.steps() && st.Steps[n-1].Replicas == intstr.FromString("100%")
}

func (m *Machine) awaitApproval(now time.Time) (Action, bool) {
	if m.s.ApprovalExpired {
		return Action{Kind: ActWait, waitKind: rollout.WaitResume, reason: m.stepLabel() +
			": not approved in time; resume waits for an approval again, rollback or stop ends it"}, true
	}
	seconds := m.setup.Spec.Policy.ApprovalExpiresSeconds
	if seconds > 0 && m.s.ApprovalExpiresAt == nil {
		m.s.ApprovalExpiresAt = new(now.Add(time.Duration(seconds) * time.Second))
	}
	if m.s.ApprovalExpiresAt != nil && !now.Before(*m.s.ApprovalExpiresAt) {
		m.expire(now)
		return Action{}, false
	}
	why := fmt.Sprintf("%s is done: waiting for approval", m.stepLabel())
	if m.s.ApprovalExpiresAt != nil {
		why += ", until " + phrase.Time(*m.s.ApprovalExpiresAt)
	}
	return Action{Kind: ActWait, Until: m.s.ApprovalExpiresAt, Summary: fmt.Sprintf("approval of %s", m.stepLabel()),
		waitKind: rollout.WaitApproval, reason: why}, true
}

// expire applies policy.onExpiry.
func (m *Machine) expire(now time.Time) {
	m.s.ApprovalExpiresAt = nil
	if m.setup.Spec.Policy.OnExpiry == strategy.OnFailureRollback && m.s.Stage == stageSteps {
		m.notePolicy(rollout.VerbRollback, fmt.Sprintf("%s was not approved in time: the policy rolls back",
			m.stepLabel()), now)
		m.rollBack(now)
		return
	}
	m.s.ApprovalExpired = true
	m.notePolicy(rollout.VerbPause, fmt.Sprintf("%s was not approved in time: the rollout waits for a resume",
		m.stepLabel()), now)
}

// nextStep continues after a step that is done, unless the next one has to wait for a release window.
func (m *Machine) nextStep(now time.Time) (Action, bool) {
	if a, held := m.awaitNextWindow(now); held {
		return a, true
	}
	s := &m.s.Status
	s.Steps[s.CurrentStepIndex-1].FinishedAt = &now
	if s.CurrentStepIndex < m.steps() {
		m.enterStep(s.CurrentStepIndex+1, now)
		return Action{}, false
	}
	s.CurrentStepState = rollout.StateCompleted
	if m.s.Stage == stageRollback {
		m.startFinalising(rollout.EndRollback)
	} else {
		m.startFinalising(rollout.EndSuccess)
	}
	return Action{}, false
}

// startFinalising begins to finalise. Before the claim is taken, and while another release's remains are being rolled
// back, it only records the ending.
func (m *Machine) startFinalising(ending rollout.Ending) {
	m.s.clearForTurn()
	m.s.Ending = ending
	if m.s.Stage == stageBegin || m.s.Stage == stageAdopt && ending != rollout.EndFrozen &&
		ending != rollout.EndDeleted {
		return
	}
	m.s.Stage, m.s.FinalMoveIndex, m.s.Leaving = stageFinal, 0, leavingAsk
}

// notePolicy logs a decision that the policy made, without an actor.
func (m *Machine) notePolicy(verb rollout.Verb, message string, now time.Time) {
	m.note(rollout.Command{Verb: verb, Actor: "policy", Via: "policy"}, audit.Accepted, message, now)
}

func (m *Machine) stepLabel() string {
	return fmt.Sprintf("step %d of %d", m.s.Status.CurrentStepIndex, m.steps())
}
