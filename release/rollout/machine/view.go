package machine

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// explain writes into the status what an action means: the reason, what the rollout waits for, and the states of the
// steps.
func (m *Machine) explain(a Action, now time.Time) {
	s := &m.s.Status
	before := *s
	if left := s.Traffic; a.Kind == ActWait && left != nil && len(left.LeftOut) > 0 && m.s.Stage == stageSteps {
		a.reason += ". " + strings.Join(left.LeftOut, "; ")
	}
	if m.ended() {
		m.explainEnd(now)
	} else {
		s.Reason, s.WaitingFor = a.reason, m.waiting(a, now)
		if s.WaitingFor.Kind == rollout.WaitParty && m.s.Unreachable != "" {
			s.Reason = m.unreachableReason()
			s.WaitingFor.Message = s.Reason
		}
	}
	s.NextStepIndex = m.nextIndex()
	for i := range s.Steps {
		s.Steps[i].State = m.stepState(i + 1)
	}
	if before.Reason != s.Reason || before.Phase != s.Phase || before.CurrentStepState != s.CurrentStepState ||
		before.CurrentStepIndex != s.CurrentStepIndex {
		s.LastUpdateTime = now
	}
}

// explainEnd writes the status of a rollout that has ended.
func (m *Machine) explainEnd(now time.Time) {
	s := &m.s.Status
	s.Phase, s.WaitingFor, s.FinalisingStep, s.Paused = m.s.FinalPhase, nil, "", false
	s.Frozen = m.s.Ending == rollout.EndFrozen && s.Phase == rollout.PhaseCancelled && m.s.Adopted == nil &&
		!m.untouched()
	if s.FinishedAt == nil {
		s.FinishedAt = &now
	}
	switch s.Phase {
	case rollout.PhaseHealthy:
		s.CurrentStepState = rollout.StateCompleted
	case rollout.PhaseRolledBack:
		s.CurrentStepState = rollout.StateRolledBack
	}
	s.Reason = m.endReason()
}

func (m *Machine) endReason() string {
	s := &m.s.Status
	var text string
	switch {
	case s.Phase == rollout.PhaseHealthy && m.s.ReleasedAs == rollout.SideNew:
		text = "finished: every pod is of the new version, which was released before the rollback came: start a " +
			"release of the earlier version instead"
	case s.Phase == rollout.PhaseRolledBack && m.s.ReleasedAs == rollout.SideStable:
		text = "rolled back: the workload was released by another client, with the stable version"
	case s.Phase == rollout.PhaseHealthy && m.s.AlreadyComplete && m.s.OverHung != "":
		text = "finished: the workload's own update to revision " + m.s.OverHung + ", which hung, was taken back, " +
			"and every pod is of this version"
	case s.Phase == rollout.PhaseHealthy && m.s.AlreadyComplete:
		text = "finished: every pod was of this version already, and has the number of this release now"
	case s.Phase == rollout.PhaseHealthy && m.s.Ending == rollout.EndNew:
		text = "finished before its last step: every pod is of the new version"
	case s.Phase == rollout.PhaseHealthy:
		text = "finished: every pod is of the new version"
	case s.Phase == rollout.PhaseRolledBack:
		text = "rolled back: every pod is of the stable version"
	case s.Frozen:
		return "frozen: the split stays in place until the next release of the workload, or a rollback, removes it"
	case s.Phase == rollout.PhaseCancelled && m.s.Ending == rollout.EndFrozen:
		return m.stoppedEarly()
	case m.s.Ending == rollout.EndDetached:
		return "detached: what it had borrowed is restored, and the workload's own controller continues"
	case m.s.Ending == rollout.EndDeleted:
		return "the workload was deleted during its release: its traffic is restored"
	default:
		return "failed: " + m.s.LastMessage
	}
	if m.s.Superseding {
		text += "; a newer release replaces it"
	}
	return text
}

// stoppedEarly returns the reason of a rollout that was stopped to frozen while it had no split of its own.
func (m *Machine) stoppedEarly() string {
	switch {
	case m.s.Adopted != nil:
		return fmt.Sprintf("stopped before its first step: what an earlier release left on %s stays in place; "+
			"the next release of the workload, or a rollback, removes it", m.workloadName())
	case m.s.MayHoldClaim:
		return fmt.Sprintf("stopped before its first change: nothing of it is left on %s", m.workloadName())
	default:
		return fmt.Sprintf("stopped before it began: it has changed nothing on %s", m.workloadName())
	}
}

// waiting returns what an action waits for. Since is kept as long as that stays the same.
func (m *Machine) waiting(a Action, now time.Time) *rollout.WaitingFor {
	kind := a.waitKind
	if m.s.Unreachable != "" && a.Activity() {
		kind = rollout.WaitParty
	}
	w := &rollout.WaitingFor{Kind: kind, Since: now, Message: a.reason}
	if a.Kind == ActWait {
		w.Until = a.Until
	}
	switch kind {
	case rollout.WaitApproval, rollout.WaitTimer:
		w.Gate = m.gateOf("")
	case rollout.WaitWindow:
		w.Gate = m.gateOf(string(kind))
	}
	if old := m.s.Status.WaitingFor; old != nil && old.Kind == w.Kind && old.Gate == w.Gate &&
		(old.Message == w.Message || kind == rollout.WaitParty || kind == rollout.WaitWindow) {
		w.Since = old.Since
	}
	return w
}

// gate returns the token of this visit of the current step at the current revision. The gate of a release window
// differs from the step's own, so that approving the step twice does not override the window.
func (m *Machine) gate() string {
	if m.waitsForWindow() {
		return m.gateOf(string(rollout.WaitWindow))
	}
	return m.gateOf("")
}

func (m *Machine) gateOf(what string) string {
	s := m.s.Status
	return audit.Gate(m.setup.Claim+" "+m.setup.Record, s.CanaryRevision, strconv.Itoa(s.CurrentStepIndex),
		strconv.Itoa(m.s.Visit)+what)
}

func (m *Machine) nextIndex() int {
	s := &m.s.Status
	if m.s.Stage == stageFinal || m.ended() || s.CurrentStepIndex >= m.steps() {
		return -1
	}
	return s.CurrentStepIndex + 1
}

func (m *Machine) stepState(n int) string {
	s := &m.s.Status
	step := s.Steps[n-1]
	over := m.s.Stage == stageFinal || m.ended()
	switch {
	case step.FinishedAt != nil:
		return string(rollout.StateCompleted)
	case n == s.CurrentStepIndex && (!over || m.s.Ending.Side() != rollout.SideNew):
		return string(s.CurrentStepState)
	case n < s.CurrentStepIndex || over:
		return rollout.StepSkipped
	default:
		return rollout.StepPending
	}
}

// note logs what no user decided, or a command that could not be read.
func (m *Machine) note(c rollout.Command, outcome audit.Outcome, message string, now time.Time) {
	if c.Step == 0 {
		c.Step = m.s.Status.CurrentStepIndex
	}
	e := c.Entry(now)
	e.Outcome, e.Message = outcome, message
	m.s.Log.Append(e)
}

// stepStatuses returns the steps as the status shows them before any of them begins.
func stepStatuses(steps []strategy.Step) []rollout.StepStatus {
	statuses := make([]rollout.StepStatus, len(steps))
	for i, step := range steps {
		s := rollout.StepStatus{Index: i + 1, Replicas: step.Replicas, Matches: step.Matches,
			RequestHeaderModifier: step.RequestHeaderModifier, Pause: "approval", State: rollout.StepPending}
		if step.Traffic != nil {
			s.Traffic = fmt.Sprintf("%d%%", *step.Traffic)
		}
		if p := step.PauseSeconds; p != nil {
			s.Pause = "none"
			if *p > 0 {
				s.Pause = (time.Duration(*p) * time.Second).String()
			}
		}
		statuses[i] = s
	}
	return statuses
}
