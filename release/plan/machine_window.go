package plan

import (
	"fmt"
	"strings"
	"time"

	"slipway.io/slipway/release/window"
)

// WaitWindow is the kind of wait of a task whose times do not allow items to begin.
const WaitWindow = "window"

// WindowState is the last answer about a task's times (release windows and freezes).
type WindowState struct {
	Open bool `json:"open,omitempty"`
	// Until is when the answer expires; nil: never.
	Until *time.Time `json:"until,omitempty"`
	// Since is when the wait began; the zero time if the task does not wait.
	Since  time.Time `json:"since,omitzero"`
	Reason string    `json:"reason,omitempty"`
}

// EnforceTimes makes items begin only when the task's times allow it.
func (m *Machine) EnforceTimes() { m.timed = true }

// NextAt returns the items that may start at a time.
func (m *Machine) NextAt(now time.Time) []int {
	if !m.windowOpen(now) {
		return nil
	}
	return m.Next()
}

// windowOpen reports whether the last answer is still valid and allows an item to begin.
func (m *Machine) windowOpen(now time.Time) bool {
	o := m.windowState
	return !m.timed || o != nil && o.Open && (o.Until == nil || now.Before(*o.Until))
}

// NeedsWindowCheck reports whether the task's times have to be evaluated: an item could begin, and the last answer has
// expired.
func (m *Machine) NeedsWindowCheck(now time.Time) bool {
	if m.windowOpen(now) || len(m.Next()) == 0 {
		return false
	}
	o := m.windowState
	return o == nil || o.Open || o.Until != nil && !now.Before(*o.Until)
}

// SetWindow stores the current answer about the task's times.
func (m *Machine) SetWindow(a window.Answer, now time.Time) {
	o := WindowState{Open: a.Open, Until: a.Until, Reason: a.Reason}
	if !a.Open {
		o.Since = now
		if previous := m.windowState; previous != nil && !previous.Open {
			o.Since = previous.Since
		}
	}
	m.windowState = &o
	m.updateState()
}

// Waiting returns the release window that the next items wait for; nil if they wait for none.
func (m *Machine) Waiting() *RolloutWait {
	o := m.windowState
	if !m.timed || o == nil || o.Open || len(m.Next()) == 0 {
		return nil
	}
	return &RolloutWait{Kind: WaitWindow, Since: o.Since, Until: o.Until, Message: o.Reason}
}

// approve lets items that wait for a release window begin anyway. The times apply again after the time at which the
// wait would have ended.
func (m *Machine) approve(reason string) (done, refusal string) {
	wait := m.Waiting()
	switch {
	case m.State.Final() || m.State == TaskStopping:
		return "", m.illegalVerb(VerbApprove)
	case wait == nil && (m.State == TaskPausing || m.State == TaskPaused):
		return "", fmt.Sprintf("the task is %s: resume it, then approve what waits for a release window", m.State)
	case wait == nil:
		return "", m.nothingToApprove()
	case strings.TrimSpace(reason) == "":
		return "", "an approve overrides the release windows and needs a reason: " + wait.Message
	}
	m.windowState = &WindowState{Open: true, Until: wait.Until}
	done = "it begins now, although " + wait.Message
	if wait.Until == nil {
		return done + "; the task's release windows no longer apply", ""
	}
	return fmt.Sprintf("%s; until then its release windows do not apply", done), ""
}

// nothingToApprove explains why there is nothing to approve, and points to rollouts that may wait for an approval.
func (m *Machine) nothingToApprove() string {
	if rolling := m.rolling(); len(rolling) > 0 {
		return fmt.Sprintf("the task's own release windows hold nothing back: what the rollouts of %s wait for is "+
			"approved on the rollout, which the "+
			"task's workloads name (slipway rollout approve NAMESPACE/NAME)", m.named(rolling))
	}
	return "the task waits for no release window: there is nothing to approve"
}
