package machine

import (
	"strings"
	"time"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/window"
)

// opening is what is known of the times at which a step may begin.
type opening struct {
	Open bool `json:"open,omitempty"`
	// Until is how long that counts; nil: for ever.
	Until  *time.Time `json:"until,omitempty"`
	Reason string     `json:"reason,omitempty"`
}

// keepsTimes says whether the policy says when a step may begin.
func (m *Machine) keepsTimes() bool { return !m.setup.Spec.Policy.AnyTime() }

// beginsLater holds a release back that has not begun. Who ends it is not held back.
func (m *Machine) beginsLater(now time.Time) (Action, bool) {
	switch {
	case !m.s.Unopened || m.s.Ending != rollout.EndNone:
		return Action{}, false
	case m.s.Status.Paused:
		return Action{Kind: ActRest, waits: rollout.WaitResume, why: "before the first step: paused, " + m.s.PausedBy + "; resume goes on"}, true
	}
	return m.awaitOpening(now)
}

// beforeStep is what comes before the pods of a step: one that somebody has jumped to may have to wait for a release window.
func (m *Machine) beforeStep(now time.Time) (Action, bool) {
	if m.s.Unopened && m.s.Stage == stageSteps {
		if a, held := m.awaitOpening(now); held {
			return a, true
		}
	}
	return m.before()
}

// nextBeginsLater holds back the step after one that is done.
func (m *Machine) nextBeginsLater(now time.Time) (Action, bool) {
	if m.s.Stage != stageSteps || m.s.Status.CurrentStepIndex >= m.steps() {
		return Action{}, false
	}
	a, held := m.awaitOpening(now)
	if held {
		m.s.Approved = m.s.Visit // it is not asked for an approval once more when its pods are seen to meanwhile
	}
	return a, held
}

// awaitOpening asks whether the policy's times allow a step to begin, and waits until they do or somebody overrides them.
func (m *Machine) awaitOpening(now time.Time) (Action, bool) {
	o := m.s.Window
	switch {
	case !m.keepsTimes():
		return Action{}, false
	case m.s.Overridden, o != nil && o.Open && (o.Until == nil || now.Before(*o.Until)):
		m.s.Unopened, m.s.Overridden = false, false
		return Action{}, false
	case o == nil || o.Open || o.Until != nil && !now.Before(*o.Until):
		a := m.activity(ActAskWindow, rollout.WaitWindow, "is a release window open?")
		a.Window = &window.Question{Times: window.Of(m.setup.Spec.Policy.Times), At: now}
		return a, true
	case m.s.PodsUnsettled && m.inSteps():
		return m.halt("it waits for a release window"), true
	}
	return Action{Kind: ActRest, Until: o.Until, Summary: "until a release window opens", waits: rollout.WaitWindow,
		why: m.place() + ": nothing begins: " + o.Reason}, true
}

// windowKnown takes what the times say.
func (m *Machine) windowKnown(a window.Answer) {
	m.s.Window = &opening{Open: a.Open, Until: a.Until, Reason: a.Reason}
}

// waitsForWindow says whether a release window is what it waits for.
func (m *Machine) waitsForWindow() bool {
	s := m.s.Status
	return m.keepsTimes() && m.s.Trouble == nil && !s.Paused && s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitWindow
}

// override lets the step that waits for a release window begin all the same.
func (m *Machine) override(c rollout.Command) (done, refusal string) {
	why := "a release window"
	if o := m.s.Window; o != nil && !o.Open {
		why = o.Reason
	}
	switch {
	case strings.TrimSpace(c.Reason) == "":
		return "", "an approve overrides the release windows and needs a reason: " + why
	case c.Gate == "":
		return "", "an approve that overrides the release windows names its gate: send waitingFor.gate as it is shown (" + why + ")"
	}
	m.s.Overridden = true
	return "it begins now, although " + why, ""
}
