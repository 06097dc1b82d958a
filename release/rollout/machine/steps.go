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
	return m.setup.Spec.Strategy.Steps[m.c.Status.CurrentStepIndex-1]
}

func (m *Machine) steps() int { return len(m.setup.Spec.Strategy.Steps) }

// enterStep goes to a step, from 1. Each time is a visit of its own.
func (m *Machine) enterStep(n int, now time.Time) {
	s := &m.c.Status
	s.CurrentStepIndex, s.CurrentStepState = n, rollout.StateBeforeUpgrade
	m.c.Visit++
	m.c.RestUntil, m.c.ExpiresAt, m.c.Expired, m.c.Check, m.c.SpentSeconds = nil, nil, false, CheckNone, 0
	at := now
	s.Steps[n-1].StartedAt, s.Steps[n-1].FinishedAt = &at, nil
}

// throughSteps is the way of a step: before the pods, the pods, the traffic, the rest.
func (m *Machine) throughSteps(now time.Time) (Action, bool) {
	s := &m.c.Status
	switch {
	case m.c.Check != CheckNone || m.lookAgain():
		return m.move(m.c.Check == CheckLook), true
	case s.Paused && m.c.Loose:
		return m.halt("it is paused, " + m.c.PausedBy), true
	case s.Paused:
		return m.pausedHere(), true
	}
	if m.c.Stage == StageBack && m.needsStableRoutes() {
		return m.route(rollout.RouteToStable, strategy.Traffic{}), true
	}
	if m.c.Counting {
		return m.count()
	}
	switch s.CurrentStepState {
	case rollout.StateBeforeUpgrade:
		if a, needed := m.before(); needed {
			return a, true
		}
		s.CurrentStepState = rollout.StateUpgrade
	case rollout.StateUpgrade:
		return m.move(false), true
	case rollout.StateTrafficRouting:
		if m.routes() {
			return m.route(rollout.RouteEnsure, m.step().Asks()), true
		}
		s.CurrentStepState = rollout.StatePaused
	case rollout.StatePaused:
		return m.rest(now)
	default:
		m.nextStep(now)
	}
	return Action{}, false
}

// count brings to rest what a step has left in its middle, so that it is known how many pods are to go back.
func (m *Machine) count() (Action, bool) {
	if m.c.Loose {
		return m.halt("they go back in batches"), true
	}
	m.c.Counting, m.c.From = false, m.c.Status.CanaryReplicas
	if m.c.From == 0 {
		m.finish(rollout.EndRollback)
	}
	return Action{}, false
}

// routes says whether the current step moves traffic.
func (m *Machine) routes() bool {
	return m.c.Stage == StageSteps && m.setup.Spec.Strategy.HasTraffic() && m.step().Routes()
}

// needsStableRoutes: a rollback in batches takes traffic back before the first pod.
func (m *Machine) needsStableRoutes() bool {
	return m.setup.Spec.Strategy.HasTraffic() && m.c.Routed != No
}

// before is what the Services and routes need before the step's pods move: the stable Service pinned to the stable pods while there are to be
// any, unpinned before the last of them goes, and everything given back before a step that leaves traffic to the pods.
func (m *Machine) before() (Action, bool) {
	if m.c.Stage != StageSteps || !m.setup.Spec.Strategy.HasTraffic() {
		return Action{}, false
	}
	if !m.step().Routes() {
		switch {
		case m.c.Pinned != No:
			return m.route(rollout.RouteUnpin, strategy.Traffic{}), true
		case m.c.Routed != No:
			return m.route(rollout.RouteToStable, strategy.Traffic{}), true
		case m.c.CanaryServices:
			return m.route(rollout.RouteRemoveCanary, strategy.Traffic{}), true
		}
		return Action{}, false
	}
	if m.setup.Spec.Strategy.DisableGenerateCanaryService {
		return Action{}, false
	}
	takesAll := m.setup.Spec.Strategy.Style == strategy.StylePartition && (m.takesAll() || m.allNew())
	switch {
	case takesAll && m.c.Pinned != No:
		return m.route(rollout.RouteUnpin, strategy.Traffic{}), true
	case !takesAll && m.c.Pinned != Yes && !m.c.PutBackPods: // the pods come first that somebody's edit has taken
		return m.route(rollout.RoutePin, strategy.Traffic{}), true
	}
	return Action{}, false
}

// takesAll says whether the step leaves no stable pod. A share below 100 % leaves one, unless there is one pod only.
func (m *Machine) takesAll() bool {
	return strategy.Target(m.step().Replicas, m.c.Status.Replicas) >= m.c.Status.Replicas
}

// allNew says whether no stable pod is left, as far as is known.
func (m *Machine) allNew() bool {
	return m.c.Status.Replicas > 0 && m.c.Status.CanaryReplicas >= m.c.Status.Replicas
}

// rest is the pause of a step: for a person, for a time, or none.
func (m *Machine) rest(now time.Time) (Action, bool) {
	step := m.step()
	switch {
	case m.c.Promoted, m.passes(), step.PauseSeconds != nil && *step.PauseSeconds <= 0:
		m.c.Status.CurrentStepState = rollout.StateReady
		return Action{}, false
	case step.PauseSeconds == nil:
		return m.awaitApproval(now)
	}
	if m.c.RestUntil == nil {
		until := now.Add(time.Duration(*step.PauseSeconds) * time.Second)
		m.c.RestUntil = &until
	}
	if now.Before(*m.c.RestUntil) {
		return Action{Kind: ActRest, Until: m.c.RestUntil, Summary: fmt.Sprintf("%s rests", m.stepOf()), waits: rollout.WaitTimer,
			why: fmt.Sprintf("%s rests until %s, then it goes on by itself", m.stepOf(), clock(*m.c.RestUntil))}, true
	}
	m.note(rollout.Command{Verb: VerbElapsed, Actor: "timer", Via: "policy"}, audit.Accepted,
		fmt.Sprintf("the pause of %s, %s, has elapsed: it goes on", m.stepOf(), time.Duration(*step.PauseSeconds)*time.Second), now)
	m.c.Status.CurrentStepState = rollout.StateReady
	return Action{}, false
}

// passes: the last step at 100 % of a canary needs no pause, since nothing is left to be looked at beside it; a blue-green's does, since the old
// version is still there.
func (m *Machine) passes() bool {
	r := m.step().Replicas
	return m.setup.Spec.Strategy.Style != strategy.StyleBlueGreen && m.c.Status.CurrentStepIndex == m.steps() && r.Type == intstr.String && r.StrVal == "100%"
}

func (m *Machine) awaitApproval(now time.Time) (Action, bool) {
	if m.c.Expired {
		return Action{Kind: ActRest, waits: rollout.WaitResume, why: fmt.Sprintf("%s: nobody approved in time; resume has it wait for an approval again, rollback or stop ends it", m.stepOf())}, true
	}
	seconds := m.setup.Spec.Policy.ApprovalExpiresSeconds
	if seconds > 0 && m.c.ExpiresAt == nil {
		at := now.Add(time.Duration(seconds) * time.Second)
		m.c.ExpiresAt = &at
	}
	if m.c.ExpiresAt != nil && !now.Before(*m.c.ExpiresAt) {
		m.expire(now)
		return Action{}, false
	}
	why := fmt.Sprintf("%s is done: it waits for somebody to approve it", m.stepOf())
	if m.c.ExpiresAt != nil {
		why += ", until " + clock(*m.c.ExpiresAt)
	}
	return Action{Kind: ActRest, Until: m.c.ExpiresAt, Summary: fmt.Sprintf("approval of %s", m.stepOf()), waits: rollout.WaitApproval, why: why}, true
}

// expire is policy.onExpiry.
func (m *Machine) expire(now time.Time) {
	m.c.ExpiresAt = nil
	if m.setup.Spec.Policy.OnExpiry == strategy.OnFailureRollback && m.c.Stage == StageSteps {
		m.policyDecides(rollout.VerbRollback, fmt.Sprintf("nobody approved %s in time: the policy rolls back", m.stepOf()), now)
		m.rollBack(now)
		return
	}
	m.c.Expired = true
	m.policyDecides(rollout.VerbPause, fmt.Sprintf("nobody approved %s in time: it waits for a resume", m.stepOf()), now)
}

// nextStep goes on to the next step, or to finalising after the last.
func (m *Machine) nextStep(now time.Time) {
	s := &m.c.Status
	at := now
	s.Steps[s.CurrentStepIndex-1].FinishedAt = &at
	if s.CurrentStepIndex < m.steps() {
		m.enterStep(s.CurrentStepIndex+1, now)
		return
	}
	s.CurrentStepState = rollout.StateCompleted
	if m.c.Stage == StageBack {
		m.finish(rollout.EndRollback)
		return
	}
	m.finish(rollout.EndSuccess)
}

// rollBack turns the rollout round: through the steps where the policy says so, at once otherwise.
func (m *Machine) rollBack(now time.Time) {
	inBatches := m.setup.Spec.Policy.RollbackInBatches && m.setup.Spec.Strategy.Style == strategy.StylePartition
	if m.c.Stage == StageSteps && inBatches && m.c.Moved && (m.c.Loose || m.c.Status.CanaryReplicas > 0) {
		m.turn()
		m.c.Ending, m.c.Stage, m.c.Counting, m.c.Promoted = rollout.EndRollback, StageBack, true, false
		for i := range m.c.Status.Steps {
			m.c.Status.Steps[i].StartedAt, m.c.Status.Steps[i].FinishedAt = nil, nil
		}
		m.enterStep(1, now)
		return
	}
	m.finish(rollout.EndRollback)
}

// finish turns to finalising. Before the claim is taken, and while another's remains are brought home, it only notes where to.
func (m *Machine) finish(ending rollout.Ending) {
	m.turn()
	m.c.Ending = ending
	if m.c.Stage == StageBegin || m.c.Stage == StageAdopt && ending != rollout.EndFrozen && ending != rollout.EndGone {
		return
	}
	m.c.Stage, m.c.FinalMove, m.c.Leaving = StageFinal, 0, LeavingAsk
}

// turn drops what held the rollout, and stops what is being carried out.
func (m *Machine) turn() {
	m.epoch++
	m.interrupted = m.running != nil && m.running.stoppable()
	m.c.Trouble, m.c.Status.Paused, m.c.PausedBy, m.c.Check, m.c.Expired = nil, false, "", CheckNone, false
	m.c.Away, m.c.AwayCount, m.c.AgainAt, m.c.SpentSeconds = "", 0, nil, 0
	m.c.RestUntil, m.c.ExpiresAt = nil, nil
	m.c.Status.Phase = rollout.PhaseProgressing
}

// policyDecides notes what a rule decided in nobody's name.
func (m *Machine) policyDecides(verb rollout.Verb, message string, now time.Time) {
	m.note(rollout.Command{Verb: verb, Actor: "policy", Via: "policy"}, audit.Accepted, message, now)
}

func (m *Machine) stepOf() string {
	return fmt.Sprintf("step %d of %d", m.c.Status.CurrentStepIndex, m.steps())
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }
