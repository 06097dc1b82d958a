package machine

import (
	"fmt"
	"strconv"
	"time"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// explain writes what an action means into the status: the reason, what it waits for, and how far the steps are.
func (m *Machine) explain(a Action, now time.Time) {
	s := &m.s.Status
	before := *s
	if m.over() {
		m.explainEnd(now)
	} else {
		s.Reason, s.WaitingFor = a.why, m.waiting(a, now)
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

// explainEnd is the status of a rollout that is over.
func (m *Machine) explainEnd(now time.Time) {
	s := &m.s.Status
	s.Phase, s.WaitingFor, s.FinalisingStep, s.Paused = m.s.Closing, nil, "", false
	s.Frozen = m.s.Ending == rollout.EndFrozen && s.Phase == rollout.PhaseCancelled && m.s.Adopted == nil && !m.untouched()
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
	case s.Phase == rollout.PhaseHealthy && m.s.Whole:
		text = "finished: every pod was of this version already, and has the number of this release now"
	case s.Phase == rollout.PhaseHealthy && m.s.Ending == rollout.EndNew:
		text = "finished before its last step: everything is of the new version"
	case s.Phase == rollout.PhaseHealthy:
		text = "finished: everything is of the new version"
	case s.Phase == rollout.PhaseRolledBack:
		text = "rolled back: everything is of the stable version"
	case s.Frozen:
		return "frozen: the split stays where it is until the next release of the workload, or a rollback, brings it home"
	case s.Phase == rollout.PhaseCancelled && m.s.Ending == rollout.EndFrozen:
		return m.stoppedEarly()
	case m.s.Ending == rollout.EndDetached:
		return "let go: what it had borrowed is given back, and the workload's own controller goes on"
	case m.s.Ending == rollout.EndGone:
		return "the workload was deleted while it was being released: its traffic is given back"
	default:
		return "failed: " + m.s.Note
	}
	if m.s.Superseding {
		text += "; a newer release takes its place"
	}
	return text
}

// stoppedEarly is the reason of a rollout that was stopped to frozen while there was no split of its own.
func (m *Machine) stoppedEarly() string {
	switch {
	case m.s.Adopted != nil:
		return fmt.Sprintf("stopped before its first step: what an earlier release left on %s stays as it is; "+
			"the next release of the workload, or a rollback, brings it home", m.workload())
	case m.s.Claimed:
		return fmt.Sprintf("stopped before its first change: nothing of it is left on %s", m.workload())
	default:
		return fmt.Sprintf("stopped before it began: it has changed nothing on %s", m.workload())
	}
}

// waiting is what an action waits for; the time since when is kept while it is the same.
func (m *Machine) waiting(a Action, now time.Time) *rollout.WaitingFor {
	kind := a.waits
	if m.s.Unreachable != "" && a.Activity() {
		kind = rollout.WaitParty
	}
	w := &rollout.WaitingFor{Kind: kind, Since: now, Message: a.why}
	if a.Kind == ActRest {
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

// gate stands for this visit of the step at which the release is, at one revision. That of a release window is another one than the step's own:
// who approves the step twice does not override the window.
func (m *Machine) gate() string {
	if m.waitsForWindow() {
		return m.gateOf(string(rollout.WaitWindow))
	}
	return m.gateOf("")
}

func (m *Machine) gateOf(what string) string {
	s := m.s.Status
	return workloadops.Gate(m.setup.Claim+" "+m.setup.Record, s.CanaryRevision, strconv.Itoa(s.CurrentStepIndex), strconv.Itoa(m.s.Visit)+what)
}

func (m *Machine) nextIndex() int {
	s := &m.s.Status
	if m.s.Stage == stageFinal || m.over() || s.CurrentStepIndex >= m.steps() {
		return -1
	}
	return s.CurrentStepIndex + 1
}

// Words for the states of steps other than the one that is under way, which has a StepState.
const (
	stepPending = "Pending"
	stepSkipped = "Skipped"
)

func (m *Machine) stepState(n int) string {
	s := &m.s.Status
	step := s.Steps[n-1]
	over := m.s.Stage == stageFinal || m.over()
	switch {
	case step.FinishedAt != nil:
		return string(rollout.StateCompleted)
	case n == s.CurrentStepIndex && (!over || m.s.Ending.Side() != rollout.SideNew):
		return string(s.CurrentStepState)
	case n < s.CurrentStepIndex || over:
		return stepSkipped
	default:
		return stepPending
	}
}

// note keeps what was decided in nobody's name, or could not be read.
func (m *Machine) note(c rollout.Command, outcome audit.Outcome, message string, now time.Time) {
	if c.Step == 0 {
		c.Step = m.s.Status.CurrentStepIndex
	}
	e := c.Entry(now)
	e.Outcome, e.Message = outcome, message
	m.s.Log.Note(e)
}

// stepStatuses are the steps as they are shown before any of them begins.
func stepStatuses(steps []strategy.Step) []rollout.StepStatus {
	statuses := make([]rollout.StepStatus, len(steps))
	for i, step := range steps {
		s := rollout.StepStatus{Index: i + 1, Replicas: step.Replicas, Matches: step.Matches, RequestHeaderModifier: step.RequestHeaderModifier,
			Pause: "approval", State: stepPending}
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
