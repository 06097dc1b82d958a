package machine

import (
	"fmt"
	"time"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
)

// What a rollout's history tells beside the verbs that people send: who started it, and that the pause of a step has elapsed.
const (
	VerbStart   rollout.Verb = "start"
	VerbElapsed rollout.Verb = "elapsed"
)

// Command carries out a verb and notes it, refused ones too. A refusal changes nothing and says what can be done instead.
func (m *Machine) Command(c rollout.Command, now time.Time) (audit.Outcome, string) {
	return m.c.Log.Take(c.Entry(now), c, func(e *audit.Entry) (done, refusal string) {
		if e.Step == 0 {
			e.Step = m.c.Status.CurrentStepIndex
		}
		if refusal = m.stale(c); refusal != "" {
			return "", refusal
		}
		if done, refusal = m.carryOut(c, now); refusal == "" && m.interrupted {
			m.c.Status.Reason = fmt.Sprintf("%s; what is under way is being stopped: %s", done, m.running.Summary)
		}
		return done, refusal
	})
}

// Refuse notes a command that could not be read.
func (m *Machine) Refuse(c rollout.Command, why string, now time.Time) {
	m.note(c, audit.Refused, why, now)
}

// Audit is the log of what people have sent.
func (m *Machine) Audit() *audit.Log { return &m.c.Log }

// stale says why a command for one step is too late. Rollback, stop, pause and supersede are about the release as a whole: they are never too late.
func (m *Machine) stale(c rollout.Command) string {
	switch c.Verb {
	case rollout.VerbApprove, rollout.VerbPromote, rollout.VerbResume, rollout.VerbRetry, rollout.VerbJump:
	default:
		return ""
	}
	if c.Step != 0 && c.Step != m.c.Status.CurrentStepIndex {
		return fmt.Sprintf("meant for step %d, but the rollout is at %s: look at it again", c.Step, m.stepOf())
	}
	if c.Gate != "" && c.Gate != m.gate() {
		return fmt.Sprintf("the gate is of an earlier visit: the rollout is at %s now: look at it again", m.stepOf())
	}
	return ""
}

// carryOut does what the state allows: either done or refusal is set.
func (m *Machine) carryOut(c rollout.Command, now time.Time) (done, refusal string) {
	if m.c.Stage == StageComplete || m.c.Stage == StageOver {
		return "", "the rollout is over: " + m.endReasonNow()
	}
	switch c.Verb {
	case rollout.VerbApprove:
		return m.approve()
	case rollout.VerbPause:
		return m.pause(c)
	case rollout.VerbResume:
		return m.resume()
	case rollout.VerbStop:
		return m.stop(c, now)
	case rollout.VerbRollback:
		return m.rollback(now)
	case rollout.VerbJump:
		return m.jump(c, now)
	case rollout.VerbRetry:
		return m.retry()
	case rollout.VerbPromote:
		return m.promote()
	case rollout.VerbSupersede:
		return m.supersede()
	default:
		return "", fmt.Sprintf("there is no verb %q: send one of %v", c.Verb, rollout.Verbs)
	}
}

func (m *Machine) endReasonNow() string {
	if m.c.Closing == "" {
		return "nothing can be done"
	}
	return "it ends " + string(m.c.Closing)
}

// walking says whether the rollout goes through steps, or is about to.
func (m *Machine) walking() bool {
	if m.c.Stage == StageBack {
		return true
	}
	return (m.c.Stage == StageBegin || m.c.Stage == StageAdopt || m.c.Stage == StageHold || m.c.Stage == StageSteps) && m.c.Ending == rollout.EndNone
}

// notWalking is why a verb about steps is refused while the rollout is being brought to its end, or is held.
func (m *Machine) notWalking(verb rollout.Verb) string {
	switch {
	case m.c.Trouble != nil:
		return fmt.Sprintf("%s cannot be done now: %s", verb, m.held().why)
	case m.walking():
		return ""
	case m.c.Ending.Side() == rollout.SideNew:
		return fmt.Sprintf("it is finishing to the new version, there is nothing to %s: rollback or stop turns it round", verb)
	default:
		return fmt.Sprintf("it is on its way back, there is nothing to %s: wait until it is over", verb)
	}
}

func (m *Machine) waitsForApproval() bool { return m.pausing() && m.step().PauseSeconds == nil }

// pausing says whether the current step is done and has a pause that is not over.
func (m *Machine) pausing() bool {
	s := m.c.Status
	return m.walking() && m.c.Trouble == nil && !s.Paused && !m.c.Expired && !m.c.Promoted && (m.c.Stage == StageSteps || m.c.Stage == StageBack) &&
		s.CurrentStepState == rollout.StatePaused && m.c.Check == CheckNone && !m.passes()
}

func (m *Machine) approve() (done, refusal string) {
	switch {
	case m.waitsForApproval():
		m.c.Status.CurrentStepState = rollout.StateReady
		m.c.ExpiresAt = nil
		return fmt.Sprintf("%s is approved: it goes on", m.stepOf()), ""
	case m.pausing() && m.c.RestUntil != nil:
		m.c.Status.CurrentStepState = rollout.StateReady
		m.c.RestUntil = nil
		return fmt.Sprintf("the pause of %s is cut short: it goes on", m.stepOf()), ""
	case m.notWalking(rollout.VerbApprove) != "":
		return "", m.notWalking(rollout.VerbApprove)
	case m.c.Status.Paused:
		return "", "it is paused: resume it, then approve"
	case m.c.Expired:
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
	return m.c.Status.Reason
}

func (m *Machine) pause(c rollout.Command) (done, refusal string) {
	switch why := m.notWalking(rollout.VerbPause); {
	case why != "":
		return "", why
	case m.c.Status.Paused:
		return "", "it is paused already: resume goes on"
	}
	m.c.Status.Paused, m.c.PausedBy = true, "by "+actorOf(c)
	if c.Reason != "" {
		m.c.PausedBy += ": " + c.Reason
	}
	m.interrupted = m.running != nil && m.running.Kind == ActMove
	return "it holds where it is: resume goes on", ""
}

func actorOf(c rollout.Command) string {
	if c.Actor == "" {
		return "somebody"
	}
	return c.Actor
}

func (m *Machine) resume() (done, refusal string) {
	switch why := m.notWalking(rollout.VerbResume); {
	case why != "":
		return "", why
	case m.c.Status.Paused:
		m.c.Status.Paused, m.c.PausedBy = false, ""
		m.interrupted = false
		m.c.ExpiresAt = nil // nobody could approve meanwhile
		return "it goes on", ""
	case m.c.Expired:
		m.c.Expired = false
		m.c.Visit++
		return fmt.Sprintf("%s waits for an approval again", m.stepOf()), ""
	default:
		return "", "it is not paused: " + m.now()
	}
}

func (m *Machine) retry() (done, refusal string) {
	t := m.c.Trouble
	switch {
	case t == nil && m.c.AgainAt != nil:
		m.c.AgainAt = nil
		return "the party is tried again now", ""
	case t == nil:
		return "", "nothing has failed: " + m.now()
	case t.Kind == failure.Gone || t.Kind == failure.ClaimLost:
		return "", "there is nothing to retry: " + m.held().why
	}
	m.c.Trouble, m.c.Status.Phase = nil, rollout.PhaseProgressing
	if t.Kind == failure.Drift { // what an earlier retry was to put back, and has not, stays to be put back
		m.c.PutBack, m.c.PutBackPods = true, m.c.PutBackPods || t.Pods
	}
	if m.c.PutBackPods && m.routes() { // its traffic was taken to the stable pods: the step is made again
		m.c.Visit++
		m.c.Check = CheckNone
		m.c.RestUntil, m.c.ExpiresAt, m.c.Status.CurrentStepState = nil, nil, rollout.StateBeforeUpgrade
	}
	if (m.c.Stage == StageSteps || m.c.Stage == StageBack) && m.c.Status.CurrentStepState == rollout.StatePaused {
		m.c.Check = CheckMove
	}
	if m.c.PutBack {
		return "what was edited is put back to what this release wrote, and it goes on", ""
	}
	return "what has failed is tried again", ""
}

func (m *Machine) promote() (done, refusal string) {
	switch why := m.notWalking(rollout.VerbPromote); {
	case why != "":
		return "", why
	case m.c.Status.Paused:
		return "", "it is paused: resume it, then promote"
	case m.c.Expired:
		return "", "the approval has expired: resume it, then promote"
	case m.c.Promoted:
		return "", "it is promoted already: " + m.now()
	}
	m.c.Promoted = true
	return "the pauses that are left are skipped", ""
}

func (m *Machine) jump(c rollout.Command, now time.Time) (done, refusal string) {
	if c.ToStep < 1 || c.ToStep > m.steps() {
		return "", fmt.Sprintf("there is no step %d: toStep is 1 to %d", c.ToStep, m.steps())
	}
	failed := m.c.Trouble != nil && m.c.Trouble.Kind != failure.Drift && m.c.Trouble.Kind != failure.Gone && m.c.Trouble.Kind != failure.ClaimLost
	switch why := m.notWalking(rollout.VerbJump); {
	case m.c.Stage == StageBack:
		return "", "it is on its way back: no jump is possible, wait until it is over"
	case why != "" && (!failed || !m.walking()):
		return "", why
	case m.c.Status.CurrentStepIndex == c.ToStep:
		return "", fmt.Sprintf("it is at step %d already: retry repeats what has failed", c.ToStep)
	}
	from, paused, by := m.c.Status.CurrentStepIndex, m.c.Status.Paused, m.c.PausedBy
	m.turn()
	m.c.Status.Paused, m.c.PausedBy = paused, by
	for i := range m.c.Status.Steps {
		if i+1 >= c.ToStep {
			m.c.Status.Steps[i].StartedAt, m.c.Status.Steps[i].FinishedAt = nil, nil
		}
	}
	m.enterStep(c.ToStep, now)
	done = fmt.Sprintf("it goes from step %d to step %d", from, c.ToStep)
	if c.ToStep < from {
		done += ": traffic moves, pods stay"
	}
	if paused {
		done += "; it is paused, resume goes on"
	}
	return done, ""
}
