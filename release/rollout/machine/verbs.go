package machine

import (
	"cmp"
	"fmt"
	"time"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
)

// The verbs of history entries that no user sends: a change by another client was reverted, the pause of a step has
// elapsed, and the party's worker restored a Service or routes because the selected pods were not ready.
const (
	VerbRestored rollout.Verb = "restored"
	verbElapsed  rollout.Verb = "elapsed"
	verbRerouted rollout.Verb = "rerouted"
)

// Command executes a verb and logs it, refused ones too. A refusal changes nothing and names what can be done instead.
func (m *Machine) Command(c rollout.Command, now time.Time) (audit.Outcome, string) {
	m.noteObjectVersion(c)
	return m.s.Log.Apply(c.Entry(now), c, func(e *audit.Entry) (done, refusal string) {
		if e.Step == 0 {
			e.Step = m.s.Status.CurrentStepIndex
		}
		if refusal = cmp.Or(c.Refuse, m.staleReason(c)); refusal != "" {
			return "", refusal
		}
		return m.carryOut(c, now)
	})
}

// Refuse logs a command that could not be read.
func (m *Machine) Refuse(c rollout.Command, why string, now time.Time) {
	m.note(c, audit.Refused, why, now)
}

// Audit is the log of the commands of users.
func (m *Machine) Audit() *audit.Log { return &m.s.Log }

// staleReason returns why a command for one step is too late, "" if it is not. Rollback, stop, pause and supersede
// concern the release as a whole and are never too late.
func (m *Machine) staleReason(c rollout.Command) string {
	switch c.Verb {
	case rollout.VerbApprove, rollout.VerbPromote, rollout.VerbResume, rollout.VerbRetry, rollout.VerbJump:
	default:
		return ""
	}
	if c.Step != 0 && c.Step != m.s.Status.CurrentStepIndex {
		return fmt.Sprintf("meant for step %d, but the rollout is at %s: review and retry", c.Step, m.stepLabel())
	}
	switch {
	case c.Gate == "", c.Gate == m.gate():
	case !audit.IsGate(c.Gate) && m.s.Status.WaitingFor != nil && m.s.Status.WaitingFor.Gate != "":
		return fmt.Sprintf("there is no gate %q: the waiting one is %s, of %s", c.Gate, m.s.Status.WaitingFor.Gate,
			m.stepLabel())
	case !audit.IsGate(c.Gate):
		return fmt.Sprintf("there is no gate %q: the rollout is at %s: review and retry", c.Gate, m.stepLabel())
	default:
		return fmt.Sprintf("stale gate: the rollout has moved on to %s: review and retry", m.stepLabel())
	}
	return ""
}

// carryOut does what the state allows. Either done or refusal is set.
func (m *Machine) carryOut(c rollout.Command, now time.Time) (done, refusal string) {
	if m.ended() && m.s.FinalPhase == "" {
		return "", "the rollout has ended: no verb is possible"
	} else if m.ended() {
		return "", "the rollout has ended as " + string(m.s.FinalPhase)
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
			m.s.RolledBackByTemplate = c.Via == viaObject
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

// stepping reports whether the rollout goes through steps, or is about to.
func (m *Machine) stepping() bool {
	if m.s.Stage == stageRollback {
		return true
	}
	return m.s.Stage != stageFinal && !m.ended() && m.s.Ending == rollout.EndNone
}

// notStepping returns why a verb about steps is refused while the rollout is being finalised or held, "" if it is not.
func (m *Machine) notStepping(verb rollout.Verb) string {
	switch {
	case m.s.Trouble != nil:
		return fmt.Sprintf("%s cannot be done now: %s", verb, m.awaitOperator().reason)
	case m.stepping():
		return ""
	case m.s.Ending.Side() == rollout.SideNew:
		return fmt.Sprintf("it is finishing to the new version, there is nothing to %s: rollback or stop reverses it",
			verb)
	default:
		return fmt.Sprintf("it is being finalised, there is nothing to %s: wait until it has ended", verb)
	}
}

// stepDone reports whether the current step is done and pauses, or would if nothing had to be checked first.
func (m *Machine) stepDone() bool {
	s := m.s.Status
	return m.stepping() && m.s.Trouble == nil && !s.Paused && !m.s.ApprovalExpired && m.inSteps() &&
		s.CurrentStepState == rollout.StatePaused && !m.skipsPause()
}

// rechecks reports whether the pods of a step that is done are inspected before it continues.
func (m *Machine) rechecks() bool { return m.s.Recheck != recheckNone || m.s.ChangeObserved }

// atPause reports whether the current step is done and its pause has not ended.
func (m *Machine) atPause() bool { return m.stepDone() && !m.s.Promoted && !m.rechecks() }

// inspecting reports whether the current step is done and its pods are only inspected because another client may have
// changed something.
func (m *Machine) inspecting() bool { return m.stepDone() && m.s.Redeclared == "" && m.rechecks() }

// passStep ends the pause of the step. While routes are reverted, the step continues after that, if it succeeds.
func (m *Machine) passStep() {
	if m.s.RouteRestore != nil {
		m.s.ApprovedVisit = m.s.Visit
		return
	}
	m.s.Status.CurrentStepState, m.s.PauseUntil, m.s.ApprovalExpiresAt = rollout.StateReady, nil, nil
}

func (m *Machine) approve(c rollout.Command) (done, refusal string) {
	switch {
	case m.needsConfirmation():
		m.s.Confirmed, m.s.Status.CurrentStepState = true, rollout.StateBeforeUpgrade
		return "the release is confirmed: it begins", ""
	case m.waitsForWindow():
		return m.overrideWindow(c)
	case m.stepDone() && m.s.ApprovedVisit == m.s.Visit:
		return "", fmt.Sprintf("%s is approved already: %s", m.stepLabel(), m.currentReason())
	case m.atPause() && m.step().PauseSeconds == nil:
		m.passStep()
		return fmt.Sprintf("%s is approved: the rollout continues", m.stepLabel()), ""
	case m.atPause() && m.s.PauseUntil != nil:
		m.passStep()
		return fmt.Sprintf("the pause of %s is cut short: the rollout continues", m.stepLabel()), ""
	case m.inspecting() && (c.Gate != "" || c.State != 0): // the approver was shown exactly this visit, while it paused
		m.s.ApprovedVisit = m.s.Visit
		return fmt.Sprintf("%s is approved: the rollout continues after checking a change by another client",
			m.stepLabel()), ""
	case m.notStepping(rollout.VerbApprove) != "":
		return "", m.notStepping(rollout.VerbApprove)
	case m.s.Status.Paused:
		return "", "it is paused: resume it, then approve"
	case m.s.ApprovalExpired:
		return "", "the approval has expired: resume waits for another one"
	default:
		return "", fmt.Sprintf("%s does not wait for an approval now: %s", m.stepLabel(), m.currentReason())
	}
}

// currentReason returns what the rollout does now, as text.
func (m *Machine) currentReason() string {
	if m.running != nil {
		return m.running.reason
	}
	return m.s.Status.Reason
}

func (m *Machine) pause(c rollout.Command) (done, refusal string) {
	switch why := m.notStepping(rollout.VerbPause); {
	case why != "":
		return "", why
	case m.s.Status.Paused:
		return "", "it is paused already: resume continues it"
	}
	m.s.Status.Paused, m.s.PausedBy, m.s.PausedByObject = true, "by "+cmp.Or(c.Actor, "an unknown actor"),
		c.Via == viaObject && m.setup.Object != nil
	if c.Reason != "" {
		m.s.PausedBy += ": " + c.Reason
	}
	return "it stops where it is: resume continues it", ""
}

func (m *Machine) resume() (done, refusal string) {
	switch why := m.notStepping(rollout.VerbResume); {
	case why != "":
		return "", why
	case m.s.Status.Paused:
		m.s.Status.Paused, m.s.PausedBy = false, ""
		m.s.ApprovalExpiresAt = nil // it could not be approved meanwhile
		return "the rollout continues", ""
	case m.s.ApprovalExpired:
		m.s.ApprovalExpired = false
		m.s.Visit++
		return fmt.Sprintf("%s waits for an approval again", m.stepLabel()), ""
	default:
		return "", "it is not paused: " + m.currentReason()
	}
}

func (m *Machine) retry() (done, refusal string) {
	t := m.s.Trouble
	switch {
	case t == nil && m.s.Redeclared != "":
		m.recheckDeclared()
		return "checking again what the workload declares", ""
	case t == nil && m.s.RetryAt != nil:
		m.s.RetryAt = nil
		return "retrying the party now", ""
	case t == nil:
		return "", "nothing has failed: " + m.currentReason()
	case workloadLost(t.Kind):
		return "", "there is nothing to retry: " + m.awaitOperator().reason
	}
	m.s.clearForRetry()
	m.prepareRetry(*t)
	if m.s.OverwriteDrift {
		return "restoring what this release wrote, then the rollout continues", ""
	}
	return "retrying what has failed", ""
}

// prepareRetry sets where a retry begins: with the pods wherever they may have changed.
func (m *Machine) prepareRetry(t trouble) {
	if t.Kind == failure.Drift { // what an earlier retry was to restore and did not is still to be restored
		m.s.OverwriteDrift, m.s.DriftOnPods = true, m.s.DriftOnPods || t.Pods
	}
	if t.Pods && m.inSteps() && m.s.Status.CurrentStepState == rollout.StateBeforeUpgrade {
		m.s.DriftOnPods = true // inspect the pods before pinning: no stable pod is ready
	}
	if m.s.DriftOnPods && m.stepRoutes() { // its traffic was moved to the stable pods: the step is made again
		m.s.OverwriteRouteDrift = m.s.OverwriteDrift
		m.s.Visit++
		m.s.Recheck = recheckNone
		m.s.PauseUntil, m.s.ApprovalExpiresAt, m.s.Status.CurrentStepState = nil, nil, rollout.StateBeforeUpgrade
	}
	if (t.Kind == failure.WorkloadFailed || t.Kind == failure.Drift) && m.stepRoutes() && !m.s.Status.Paused &&
		m.s.Status.CurrentStepState == rollout.StateTrafficRouting {
		m.s.Recheck = recheckMove // there was no pod to route to, or may be none by now: inspect the pods first
	}
	if m.inSteps() && m.s.Status.CurrentStepState == rollout.StatePaused {
		m.s.Recheck = recheckMove
		if t.Kind == failure.Drift && !t.Pods {
			m.s.RouteRestore = &routeRestore{Seen: rollout.Observed{Message: "its routes were changed"}}
		}
	}
}

func (m *Machine) promote() (done, refusal string) {
	switch why := m.notStepping(rollout.VerbPromote); {
	case why != "":
		return "", why
	case m.s.Status.Paused:
		return "", "it is paused: resume it, then promote"
	case m.s.ApprovalExpired:
		return "", "the approval has expired: resume it, then promote"
	case m.s.Promoted:
		return "", "it is promoted already: " + m.currentReason()
	}
	m.s.Promoted = true
	return "the remaining pauses are skipped", ""
}

func (m *Machine) jump(c rollout.Command, now time.Time) (done, refusal string) {
	if c.ToStep < 1 || c.ToStep > m.steps() {
		return "", fmt.Sprintf("there is no step %d: toStep is 1 to %d", c.ToStep, m.steps())
	}
	failed := m.s.Trouble != nil && m.s.Trouble.Kind != failure.Drift && !workloadLost(m.s.Trouble.Kind)
	switch why := m.notStepping(rollout.VerbJump); {
	case m.s.Stage == stageRollback:
		return "", "it is rolling back: no jump is possible, wait until it has ended"
	case why != "" && (!failed || !m.stepping()):
		return "", why
	case m.s.Status.CurrentStepIndex == c.ToStep:
		return "", fmt.Sprintf("it is at step %d already: retry repeats what has failed", c.ToStep)
	}
	from, paused, by := m.s.Status.CurrentStepIndex, m.s.Status.Paused, m.s.PausedBy
	m.s.clearForTurn()
	m.s.Status.Paused, m.s.PausedBy = paused, by
	m.goToStep(c.ToStep, now)
	m.s.WindowPending = m.hasTimes()
	done = fmt.Sprintf("it goes from step %d to step %d", from, c.ToStep)
	if c.ToStep < from {
		done += ": traffic moves, pods stay"
	}
	if paused {
		done += "; it is paused, resume continues it"
	}
	return done, ""
}
