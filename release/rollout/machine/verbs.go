package machine

import (
	"cmp"
	"fmt"
	"time"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

// What a rollout's history tells beside the verbs that people send and VerbStart: that what somebody else has changed was put back, that the
// pause of a step has elapsed, and that the party's worker kept requests from meeting nobody.
const (
	VerbRestored rollout.Verb = "restored"
	verbElapsed  rollout.Verb = "elapsed"
	verbRerouted rollout.Verb = "rerouted"
)

// Command carries out a verb and notes it, refused ones too. A refusal changes nothing and says what can be done instead.
func (m *Machine) Command(c rollout.Command, now time.Time) (audit.Outcome, string) {
	m.heard(c)
	return m.s.Log.Take(c.Entry(now), c, func(e *audit.Entry) (done, refusal string) {
		defer func() {
			if refusal == "" {
				m.onLeg(func(m *Machine) { m.again(c, now) })
			}
		}()
		if e.Step == 0 {
			e.Step = m.s.Status.CurrentStepIndex
		}
		if refusal = m.stale(c); refusal != "" {
			return "", refusal
		}
		if done, refusal = m.carryOut(c, now); refusal == "" && m.interrupted {
			m.s.Status.Reason = fmt.Sprintf("%s; what is under way is being stopped: %s", done, m.running.Summary)
		}
		return done, refusal
	})
}

// Refuse notes a command that could not be read.
func (m *Machine) Refuse(c rollout.Command, why string, now time.Time) {
	m.note(c, audit.Refused, why, now)
}

// Audit is the log of what people have sent.
func (m *Machine) Audit() *audit.Log { return &m.s.Log }

// stale says why a command for one step is too late. Rollback, stop, pause and supersede are about the whole release, and never are.
func (m *Machine) stale(c rollout.Command) string {
	switch c.Verb {
	case rollout.VerbApprove, rollout.VerbPromote, rollout.VerbResume, rollout.VerbRetry, rollout.VerbJump:
	default:
		return ""
	}
	if c.Step != 0 && c.Step != m.s.Status.CurrentStepIndex && (m.leg == nil || c.Step < m.s.Status.CurrentStepIndex) {
		return fmt.Sprintf("meant for step %d, but the rollout is at %s: look at it again", c.Step, m.stepOf())
	}
	switch {
	case c.Gate == "", c.Gate == m.gate():
	case !workloadops.IsGate(c.Gate) && m.s.Status.WaitingFor != nil && m.s.Status.WaitingFor.Gate != "":
		return fmt.Sprintf("there is no gate %q: the one that waits is %s, of %s", c.Gate, m.s.Status.WaitingFor.Gate, m.stepOf())
	case !workloadops.IsGate(c.Gate):
		return fmt.Sprintf("there is no gate %q: look at the rollout again, which is at %s", c.Gate, m.stepOf())
	default:
		return fmt.Sprintf("the gate is of an earlier visit: the rollout is at %s now: look at it again", m.stepOf())
	}
	return ""
}

// carryOut does what the state allows: either done or refusal is set.
func (m *Machine) carryOut(c rollout.Command, now time.Time) (done, refusal string) {
	if m.over() && m.s.Closing == "" {
		return "", "the rollout is over: nothing can be done"
	} else if m.over() {
		return "", "the rollout is over: it ends " + string(m.s.Closing)
	}
	switch c.Verb {
	case rollout.VerbApprove:
		return m.approve(c)
	case rollout.VerbPause:
		return m.pause(c)
	case rollout.VerbResume:
		return m.resume()
	case rollout.VerbStop:
		return m.stop(c, now)
	case rollout.VerbRollback:
		if done, refusal = m.rollback(now); refusal == "" {
			m.s.SetBack = c.Via == viaObject
		}
		return done, refusal
	case rollout.VerbJump:
		return m.jump(c, now)
	case rollout.VerbRetry:
		return m.retry()
	case rollout.VerbPromote:
		return m.promote()
	case rollout.VerbSupersede:
		return m.supersede()
	case rollout.VerbDetach:
		return m.detach(c)
	default:
		return "", fmt.Sprintf("there is no verb %q: send one of %v", c.Verb, rollout.Verbs)
	}
}

// walking says whether the rollout goes through steps, or is about to.
func (m *Machine) walking() bool {
	if m.s.Stage == stageBack {
		return true
	}
	return m.s.Stage != stageFinal && !m.over() && m.s.Ending == rollout.EndNone
}

// notWalking is why a verb about steps is refused while the rollout is being brought to its end, or is held.
func (m *Machine) notWalking(verb rollout.Verb) string {
	switch {
	case m.s.Trouble != nil:
		return fmt.Sprintf("%s cannot be done now: %s", verb, m.held().why)
	case m.walking():
		return ""
	case m.s.Ending.Side() == rollout.SideNew:
		return fmt.Sprintf("it is finishing to the new version, there is nothing to %s: rollback or stop turns it round", verb)
	default:
		return fmt.Sprintf("it is on its way back, there is nothing to %s: wait until it is over", verb)
	}
}

// pausing says whether the current step is done and has a pause that is not over.
func (m *Machine) pausing() bool {
	s := m.s.Status
	return m.walking() && m.s.Trouble == nil && !s.Paused && !m.s.Expired && !m.s.Promoted && m.inSteps() &&
		s.CurrentStepState == rollout.StatePaused && m.s.Check == checkNone && !m.passes()
}

// looking says that the current step is done, and is only being looked at again since somebody else may have changed something.
func (m *Machine) looking() bool {
	s := m.s.Status
	return m.walking() && m.s.Trouble == nil && m.s.Redeclared == "" && !s.Paused && !m.s.Expired && m.inSteps() && m.s.Check != checkNone &&
		s.CurrentStepState == rollout.StatePaused && !m.passes()
}

func (m *Machine) approve(c rollout.Command) (done, refusal string) {
	switch {
	case m.asksFirst():
		m.s.Confirmed, m.s.Status.CurrentStepState = true, rollout.StateBeforeUpgrade
		return "it is released once more: it begins", ""
	case m.waitsForWindow():
		return m.override(c)
	case m.pausing() && m.step().PauseSeconds == nil:
		m.s.Status.CurrentStepState = rollout.StateReady
		m.s.ExpiresAt = nil
		return fmt.Sprintf("%s is approved: it goes on", m.stepOf()), ""
	case m.pausing() && m.s.RestUntil != nil:
		m.s.Status.CurrentStepState = rollout.StateReady
		m.s.RestUntil = nil
		return fmt.Sprintf("the pause of %s is cut short: it goes on", m.stepOf()), ""
	case m.looking() && (c.Gate != "" || c.State != 0): // who has approved was shown this very visit at rest
		m.s.Approved = m.s.Visit
		return fmt.Sprintf("%s is approved: it goes on when the look at a change of somebody else is done", m.stepOf()), ""
	case m.notWalking(rollout.VerbApprove) != "":
		return "", m.notWalking(rollout.VerbApprove)
	case m.s.Status.Paused:
		return "", "it is paused: resume it, then approve"
	case m.s.Expired:
		return "", "the approval has expired: resume has it wait for one again"
	default:
		return "", fmt.Sprintf("%s does not wait for an approval now: %s", m.stepOf(), m.now())
	}
}

// now is what the rollout does, in words.
func (m *Machine) now() string {
	if m.running != nil {
		return m.running.why
	}
	return m.s.Status.Reason
}

func (m *Machine) pause(c rollout.Command) (done, refusal string) {
	switch why := m.notWalking(rollout.VerbPause); {
	case why != "":
		return "", why
	case m.s.Status.Paused:
		return "", "it is paused already: resume goes on"
	}
	m.s.Status.Paused, m.s.PausedBy, m.s.PausedByObject = true, "by "+cmp.Or(c.Actor, "somebody"), c.Via == viaObject && m.setup.Object != nil
	if c.Reason != "" {
		m.s.PausedBy += ": " + c.Reason
	}
	m.interrupted = m.running != nil && (m.running.Kind == ActMove || m.leg != nil)
	return "it holds where it is: resume goes on", ""
}

func (m *Machine) resume() (done, refusal string) {
	switch why := m.notWalking(rollout.VerbResume); {
	case why != "":
		return "", why
	case m.s.Status.Paused:
		m.s.Status.Paused, m.s.PausedBy = false, ""
		m.interrupted = false
		m.s.ExpiresAt = nil // nobody could approve meanwhile
		return "it goes on", ""
	case m.s.Expired:
		m.s.Expired = false
		m.s.Visit++
		return fmt.Sprintf("%s waits for an approval again", m.stepOf()), ""
	default:
		return "", "it is not paused: " + m.now()
	}
}

func (m *Machine) retry() (done, refusal string) {
	t := m.s.Trouble
	switch {
	case t == nil && m.s.Redeclared != "":
		m.lookAtDeclared()
		return "what the workload declares is looked at once more", ""
	case t == nil && m.s.AgainAt != nil:
		m.s.AgainAt = nil
		return "the party is tried again now", ""
	case t == nil:
		return "", "nothing has failed: " + m.now()
	case lost(t.Kind):
		return "", "there is nothing to retry: " + m.held().why
	}
	m.s.Trouble, m.s.Disturbed, m.s.Status.Phase = nil, 0, rollout.PhaseProgressing
	m.fromWhere(*t)
	if m.s.PutBack {
		return "what was edited is put back to what this release wrote, and it goes on", ""
	}
	return "what has failed is tried again", ""
}

// fromWhere says where a retry begins: with the pods wherever they may not be what they were.
func (m *Machine) fromWhere(t trouble) {
	if t.Kind == failure.Drift { // what an earlier retry was to put back, and has not, stays to be put back
		m.s.PutBack, m.s.PutBackPods = true, m.s.PutBackPods || t.Pods
	}
	if t.Pods && m.inSteps() && m.s.Status.CurrentStepState == rollout.StateBeforeUpgrade {
		m.s.PutBackPods = true // nothing is pinned before its pods were looked at: none of the stable ones is ready
	}
	if m.s.PutBackPods && m.routes() { // its traffic was taken to the stable pods: the step is made again
		m.s.PutBackRoutes = m.s.PutBack
		m.s.Visit++
		m.s.Check = checkNone
		m.s.RestUntil, m.s.ExpiresAt, m.s.Status.CurrentStepState = nil, nil, rollout.StateBeforeUpgrade
	}
	if (t.Kind == failure.WorkloadFailed || t.Kind == failure.Drift) && m.routes() && !m.s.Status.Paused &&
		m.s.Status.CurrentStepState == rollout.StateTrafficRouting {
		m.s.Check = checkMove // there was no pod to route to, or may be none by now: the pods are looked at first
	}
	if m.inSteps() && m.s.Status.CurrentStepState == rollout.StatePaused {
		m.s.Check = checkMove
		if t.Kind == failure.Drift && !t.Pods {
			m.s.RoutesBack = &routesBack{Seen: rollout.Observed{Message: "a change of its routes is put back"}}
		}
	}
}

func (m *Machine) promote() (done, refusal string) {
	switch why := m.notWalking(rollout.VerbPromote); {
	case why != "":
		return "", why
	case m.s.Status.Paused:
		return "", "it is paused: resume it, then promote"
	case m.s.Expired:
		return "", "the approval has expired: resume it, then promote"
	case m.s.Promoted:
		return "", "it is promoted already: " + m.now()
	}
	m.s.Promoted = true
	return "the pauses that are left are skipped", ""
}

func (m *Machine) jump(c rollout.Command, now time.Time) (done, refusal string) {
	if c.ToStep < 1 || c.ToStep > m.steps() {
		return "", fmt.Sprintf("there is no step %d: toStep is 1 to %d", c.ToStep, m.steps())
	}
	failed := m.s.Trouble != nil && m.s.Trouble.Kind != failure.Drift && !lost(m.s.Trouble.Kind)
	switch why := m.notWalking(rollout.VerbJump); {
	case m.s.Stage == stageBack:
		return "", "it is on its way back: no jump is possible, wait until it is over"
	case why != "" && (!failed || !m.walking()):
		return "", why
	case m.s.Status.CurrentStepIndex == c.ToStep && m.leg == nil:
		return "", fmt.Sprintf("it is at step %d already: retry repeats what has failed", c.ToStep)
	}
	from, paused, by := m.s.Status.CurrentStepIndex, m.s.Status.Paused, m.s.PausedBy
	m.turn()
	m.s.Status.Paused, m.s.PausedBy = paused, by
	m.goToStep(c.ToStep, now)
	m.s.Unopened = m.keepsTimes()
	done = fmt.Sprintf("it goes from step %d to step %d", from, c.ToStep)
	if c.ToStep < from {
		done += ": traffic moves, pods stay"
	}
	if paused {
		done += "; it is paused, resume goes on"
	}
	return done, ""
}
