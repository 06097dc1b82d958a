package machine

import (
	"strings"
	"time"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/window"
)

// windowState is the last answer about the times at which a step may begin.
type windowState struct {
	Open bool `json:"open,omitempty"`
	// Until is how long the answer is valid; nil: for ever.
	Until  *time.Time `json:"until,omitempty"`
	Reason string     `json:"reason,omitempty"`
}

// hasTimes reports whether the policy limits when a step may begin.
func (m *Machine) hasTimes() bool { return !m.setup.Spec.Policy.AnyTime() }

// awaitFirstWindow holds back a release that has not begun. A command that ends the release is not held back.
func (m *Machine) awaitFirstWindow(now time.Time) (Action, bool) {
	switch {
	case !m.s.WindowPending || m.s.Ending != rollout.EndNone:
		return Action{}, false
	case m.s.Status.Paused:
		return Action{Kind: ActWait, waitKind: rollout.WaitResume,
			reason: "before the first step: paused, " + m.s.PausedBy + "; resume continues it"}, true
	}
	return m.awaitWindow(now)
}

// beforeStep is what comes before the pods of a step. A step that was jumped to may have to wait for a release window.
func (m *Machine) beforeStep(now time.Time) (Action, bool) {
	if m.s.WindowPending && m.s.Stage == stageSteps {
		if a, held := m.awaitWindow(now); held {
			return a, true
		}
	}
	return m.prepareTraffic()
}

// awaitNextWindow holds back the step after one that is done.
func (m *Machine) awaitNextWindow(now time.Time) (Action, bool) {
	if m.s.Stage != stageSteps || m.s.Status.CurrentStepIndex >= m.steps() {
		return Action{}, false
	}
	a, held := m.awaitWindow(now)
	if held {
		m.s.ApprovedVisit = m.s.Visit // no second approval if its pods are inspected meanwhile
	}
	return a, held
}

// awaitWindow asks whether the policy's times allow a step to begin, and waits until they do or an approver overrides
// them.
func (m *Machine) awaitWindow(now time.Time) (Action, bool) {
	o := m.s.WindowState
	switch {
	case !m.hasTimes():
		return Action{}, false
	case m.s.WindowOverridden, o != nil && o.Open && (o.Until == nil || now.Before(*o.Until)):
		m.s.WindowPending, m.s.WindowOverridden = false, false
		return Action{}, false
	case o == nil || o.Open || o.Until != nil && !now.Before(*o.Until):
		a := m.activity(ActAskWindow, rollout.WaitWindow, "is a release window open?")
		a.Window = &window.Question{Times: window.Restricting(m.setup.Spec.Policy.Times), At: now}
		return a, true
	case m.s.PodsUnsettled && m.inSteps():
		return m.halt("it waits for a release window"), true
	}
	return Action{Kind: ActWait, Until: o.Until, Summary: "wait until a release window opens",
		waitKind: rollout.WaitWindow, reason: m.position() + ": nothing begins: " + o.Reason}, true
}

// recordWindow records an answer about the policy's times.
func (m *Machine) recordWindow(a window.Answer) {
	m.s.WindowState = &windowState{Open: a.Open, Until: a.Until, Reason: a.Reason}
}

// waitsForWindow reports whether the rollout waits for a release window.
func (m *Machine) waitsForWindow() bool {
	s := m.s.Status
	return m.hasTimes() && m.s.Trouble == nil && !s.Paused && s.WaitingFor != nil &&
		s.WaitingFor.Kind == rollout.WaitWindow
}

// overrideWindow lets the step that waits for a release window begin anyway.
func (m *Machine) overrideWindow(c rollout.Command) (done, refusal string) {
	why := "a release window"
	if o := m.s.WindowState; o != nil && !o.Open {
		why = o.Reason
	}
	switch {
	case strings.TrimSpace(c.Reason) == "":
		return "", "an approve overrides the release windows and needs a reason: " + why
	case c.Gate == "":
		return "", "an approve that overrides the release windows names its gate: send waitingFor.gate as it is " +
			"shown (" + why + ")"
	}
	m.s.WindowOverridden = true
	return "it begins now, although " + why, ""
}
