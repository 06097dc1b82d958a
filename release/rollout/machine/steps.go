package machine

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

func (m *Machine) step() strategy.Step {
	return m.setup.Spec.Strategy.Steps[m.s.Status.CurrentStepIndex-1]
}

func (m *Machine) steps() int { return len(m.setup.Spec.Strategy.Steps) }

// enterStep goes to a step, from 1. Each time is a visit of its own.
func (m *Machine) enterStep(n int, now time.Time) {
	s := &m.s.Status
	s.CurrentStepIndex, s.CurrentStepState = n, rollout.StateBeforeUpgrade
	m.s.Visit++
	m.s.RestUntil, m.s.ExpiresAt, m.s.Expired, m.s.Check, m.s.SpentSeconds, m.s.Disturbed = nil, nil, false, checkNone, 0, 0
	m.s.PutBackRoutes = false // what is edited of another step's routes is for a person
	s.Steps[n-1].StartedAt, s.Steps[n-1].FinishedAt = &now, nil
}

// goToStep goes back, or jumps, to a step: it and those after it have not been made.
func (m *Machine) goToStep(n int, now time.Time) {
	for i := n - 1; i < m.steps(); i++ {
		m.s.Status.Steps[i].StartedAt, m.s.Status.Steps[i].FinishedAt = nil, nil
	}
	m.enterStep(n, now)
}

// throughSteps is the way of a step: before the pods, the pods, the traffic, the rest.
func (m *Machine) throughSteps(now time.Time) (Action, bool) {
	s := &m.s.Status
	if !m.lookAgain() {
		if a, needed := m.putRoutesBack(); needed {
			return a, true
		}
	}
	switch {
	case m.s.Check != checkNone:
		return m.move(m.s.Check == checkLook), true
	case s.Paused && m.s.PodsUnsettled:
		return m.halt("it is paused, " + m.s.PausedBy), true
	case s.Paused:
		return Action{Kind: ActRest, waits: rollout.WaitResume, why: fmt.Sprintf("%s: paused, %s; resume goes on", m.place(), m.s.PausedBy)}, true
	case m.s.Stage == stageBack && m.setup.Spec.Strategy.HasTraffic() && m.s.Routed != no: // traffic goes back before the first pod
		return m.routeOnly(rollout.RouteToStable)
	case m.s.Counting:
		return m.count()
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
		switch empty := s.CanaryReplicas == 0; {
		case m.routes() && !empty:
			return m.route(rollout.RouteEnsure, m.step().Asks()), true
		case m.routes() && m.s.Routed != no: // scaled to a size at which no new pod is left to take the requests
			return m.routeOnly(rollout.RouteToStable)
		}
		s.CurrentStepState = rollout.StatePaused
	case rollout.StatePaused:
		return m.rest(now)
	default:
		return m.nextStep(now)
	}
	return Action{}, false
}

// count brings to rest what a step has left in its middle, so that it is known how many pods are to go back.
func (m *Machine) count() (Action, bool) {
	if m.s.PodsUnsettled {
		return m.halt("they go back in batches"), true
	}
	m.s.Counting, m.s.From = false, m.s.Status.CanaryReplicas
	if m.s.From == 0 {
		m.finish(rollout.EndRollback)
	}
	return Action{}, false
}

func (m *Machine) routes() bool {
	return m.s.Stage == stageSteps && m.setup.Spec.Strategy.HasTraffic() && m.step().Routes()
}

// before is what the Services and routes need before the step's pods move: the stable Service pinned to the stable pods while there are to
// be any, unpinned before the last of them goes, and everything given back before a step that leaves traffic to the pods.
func (m *Machine) before() (Action, bool) {
	st := m.setup.Spec.Strategy
	switch {
	case m.s.Stage != stageSteps || !st.HasTraffic():
	case m.step().Routes() && st.DisableGenerateCanaryService:
	case m.step().Routes():
		takesAll := m.s.StableGone || st.Style == strategy.StylePartition && m.takesAll()
		switch {
		case takesAll && m.s.Pinned != no:
			return m.routeOnly(rollout.RouteUnpin)
		case !takesAll && m.s.Pinned != yes && !m.s.PutBackPods: // the pods come first that somebody's edit has taken
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

// takesAll says whether the step leaves no stable pod, or none is left. A share below 100 % leaves one, unless there is one pod only.
func (m *Machine) takesAll() bool {
	s := m.s.Status
	return strategy.Target(m.step().Replicas, s.Replicas) >= s.Replicas || s.Replicas > 0 && s.CanaryReplicas >= s.Replicas
}

// rest is the pause of a step: for a person, for a time, or none.
func (m *Machine) rest(now time.Time) (Action, bool) {
	step := m.step()
	switch {
	case m.s.Promoted, m.passes(), m.s.Approved == m.s.Visit, step.PauseSeconds != nil && *step.PauseSeconds <= 0:
		m.s.Status.CurrentStepState = rollout.StateReady
		return Action{}, false
	case step.PauseSeconds == nil:
		return m.awaitApproval(now)
	}
	if m.s.RestUntil == nil {
		m.s.RestUntil = new(now.Add(time.Duration(*step.PauseSeconds) * time.Second))
	}
	if now.Before(*m.s.RestUntil) {
		return Action{Kind: ActRest, Until: m.s.RestUntil, Summary: fmt.Sprintf("%s rests", m.stepOf()), waits: rollout.WaitTimer,
			why: fmt.Sprintf("%s rests until %s, then it goes on by itself", m.stepOf(), clock(*m.s.RestUntil))}, true
	}
	m.note(rollout.Command{Verb: verbElapsed, Actor: "timer", Via: "policy"}, audit.Accepted,
		fmt.Sprintf("the pause of %s, %s, has elapsed: it goes on", m.stepOf(), time.Duration(*step.PauseSeconds)*time.Second), now)
	m.s.Status.CurrentStepState = rollout.StateReady
	return Action{}, false
}

// passes: nothing is left to be looked at after a canary's last step at 100 %. A blue-green's pauses: the old version is still there.
func (m *Machine) passes() bool { return m.passesAt(m.s.Status.CurrentStepIndex) }

func (m *Machine) passesAt(n int) bool {
	st := m.setup.Spec.Strategy
	return st.Style != strategy.StyleBlueGreen && n == m.steps() && st.Steps[n-1].Replicas == intstr.FromString("100%")
}

func (m *Machine) awaitApproval(now time.Time) (Action, bool) {
	if m.s.Expired {
		return Action{Kind: ActRest, waits: rollout.WaitResume,
			why: m.stepOf() + ": nobody approved in time; resume has it wait for an approval again, rollback or stop ends it"}, true
	}
	seconds := m.setup.Spec.Policy.ApprovalExpiresSeconds
	if seconds > 0 && m.s.ExpiresAt == nil {
		m.s.ExpiresAt = new(now.Add(time.Duration(seconds) * time.Second))
	}
	if m.s.ExpiresAt != nil && !now.Before(*m.s.ExpiresAt) {
		m.expire(now)
		return Action{}, false
	}
	why := fmt.Sprintf("%s is done: it waits for somebody to approve it", m.stepOf())
	if m.s.ExpiresAt != nil {
		why += ", until " + clock(*m.s.ExpiresAt)
	}
	return Action{Kind: ActRest, Until: m.s.ExpiresAt, Summary: fmt.Sprintf("approval of %s", m.stepOf()), waits: rollout.WaitApproval,
		why: why}, true
}

// expire is policy.onExpiry.
func (m *Machine) expire(now time.Time) {
	m.s.ExpiresAt = nil
	if m.setup.Spec.Policy.OnExpiry == strategy.OnFailureRollback && m.s.Stage == stageSteps {
		m.policyDecides(rollout.VerbRollback, fmt.Sprintf("nobody approved %s in time: the policy rolls back", m.stepOf()), now)
		m.rollBack(now)
		return
	}
	m.s.Expired = true
	m.policyDecides(rollout.VerbPause, fmt.Sprintf("nobody approved %s in time: it waits for a resume", m.stepOf()), now)
}

// nextStep goes on from a step that is done, unless what comes next waits for a release window.
func (m *Machine) nextStep(now time.Time) (Action, bool) {
	if a, held := m.nextBeginsLater(now); held {
		return a, true
	}
	s := &m.s.Status
	s.Steps[s.CurrentStepIndex-1].FinishedAt = &now
	if s.CurrentStepIndex < m.steps() {
		m.enterStep(s.CurrentStepIndex+1, now)
		return Action{}, false
	}
	s.CurrentStepState = rollout.StateCompleted
	if m.s.Stage == stageBack {
		m.finish(rollout.EndRollback)
	} else {
		m.finish(rollout.EndSuccess)
	}
	return Action{}, false
}

// rollBack turns the rollout round: through the steps where the policy says so, at once otherwise.
func (m *Machine) rollBack(now time.Time) {
	inBatches := m.setup.Spec.Policy.RollbackInBatches && m.setup.Spec.Strategy.Style == strategy.StylePartition
	if m.s.Stage == stageSteps && inBatches && m.s.Moved && (m.s.PodsUnsettled || m.s.Status.CanaryReplicas > 0) {
		m.turn()
		m.s.Ending, m.s.Stage, m.s.Counting, m.s.Promoted = rollout.EndRollback, stageBack, true, false
		m.goToStep(1, now)
		return
	}
	m.finish(rollout.EndRollback)
}

// finish turns to finalising. Before the claim is taken, and while another's remains are brought home, it only notes where to.
func (m *Machine) finish(ending rollout.Ending) {
	m.turn()
	m.s.Ending = ending
	if m.s.Stage == stageBegin || m.s.Stage == stageAdopt && ending != rollout.EndFrozen && ending != rollout.EndGone {
		return
	}
	m.s.Stage, m.s.FinalMove, m.s.Leaving = stageFinal, 0, leavingAsk
}

// turn drops what held the rollout, and stops what is being carried out.
func (m *Machine) turn() {
	m.epoch++
	m.interrupted = m.running != nil && (m.running.stoppable() || m.leg != nil && m.s.OneWrite)
	m.s.Trouble, m.s.Status.Paused, m.s.PausedBy, m.s.Check, m.s.Expired = nil, false, "", checkNone, false
	m.s.Unreachable, m.s.UnreachableCount, m.s.AgainAt, m.s.SpentSeconds = "", 0, nil, 0
	m.s.RestUntil, m.s.ExpiresAt, m.s.RoutesBack, m.s.Redeclared, m.s.Overridden = nil, nil, nil, "", false
	m.s.Status.Phase = rollout.PhaseProgressing
}

// policyDecides notes what a rule decided in nobody's name.
func (m *Machine) policyDecides(verb rollout.Verb, message string, now time.Time) {
	m.note(rollout.Command{Verb: verb, Actor: "policy", Via: "policy"}, audit.Accepted, message, now)
}

func (m *Machine) stepOf() string {
	return fmt.Sprintf("step %d of %d", m.s.Status.CurrentStepIndex, m.steps())
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }
