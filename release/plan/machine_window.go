package plan

import (
	"fmt"
	"strings"
	"time"

	"slipway.io/slipway/release/window"
)

// WaitWindow is what a task waits for while its times hold back what would begin.
const WaitWindow = "window"

// Opening is what a task knows of its times.
type Opening struct {
	Open bool `json:"open,omitempty"`
	// Until is how long that counts; nil: for ever.
	Until *time.Time `json:"until,omitempty"`
	// Since is since when it waits; the zero time while it does not.
	Since  time.Time `json:"since,omitzero"`
	Reason string    `json:"reason,omitempty"`
}

// KeepsTimes says that items begin only when the task's times allow it.
func (m *Machine) KeepsTimes() { m.timed = true }

// NextAt are the items that may start at a time.
func (m *Machine) NextAt(now time.Time) []int {
	if !m.opened(now) {
		return nil
	}
	return m.Next()
}

// opened says whether it is known that the times allow an item to begin.
func (m *Machine) opened(now time.Time) bool {
	o := m.opening
	return !m.timed || o != nil && o.Open && (o.Until == nil || now.Before(*o.Until))
}

// AsksOpening says whether the task's times have to be asked: an item could begin, and what is known of them does not count any more.
func (m *Machine) AsksOpening(now time.Time) bool {
	if m.opened(now) || len(m.Next()) == 0 {
		return false
	}
	o := m.opening
	return o == nil || o.Open || o.Until != nil && !now.Before(*o.Until)
}

// TakeOpening takes what the times say of this moment.
func (m *Machine) TakeOpening(a window.Answer, now time.Time) {
	o := Opening{Open: a.Open, Until: a.Until, Reason: a.Reason}
	if !a.Open {
		o.Since = now
		if was := m.opening; was != nil && !was.Open {
			o.Since = was.Since
		}
	}
	m.opening = &o
	m.settle()
}

// Waiting is the release window that the next items wait for; nil while they wait for none.
func (m *Machine) Waiting() *RolloutWait {
	o := m.opening
	if !m.timed || o == nil || o.Open || len(m.Next()) == 0 {
		return nil
	}
	return &RolloutWait{Kind: WaitWindow, Since: o.Since, Until: o.Until, Message: o.Reason}
}

// approve lets what waits for a release window begin all the same: until the wait would have been over, when the times count again.
func (m *Machine) approve(reason string) (done, refusal string) {
	wait := m.Waiting()
	switch {
	case m.State.Final() || m.State == TaskStopping:
		return "", m.illegal(VerbApprove)
	case wait == nil && (m.State == TaskPausing || m.State == TaskPaused):
		return "", fmt.Sprintf("the task is %s: resume it, then approve what waits for a release window", m.State)
	case wait == nil:
		return "", m.nothingToApprove()
	case strings.TrimSpace(reason) == "":
		return "", "an approve overrides the release windows and needs a reason: " + wait.Message
	}
	m.opening = &Opening{Open: true, Until: wait.Until}
	done = "it begins now, although " + wait.Message
	if wait.Until == nil {
		return done + "; the task's release windows do not count any more", ""
	}
	return fmt.Sprintf("%s; until then its release windows do not count", done), ""
}

// nothingToApprove says where else there may be something to approve.
func (m *Machine) nothingToApprove() string {
	if rolling := m.rolling(); len(rolling) > 0 {
		return fmt.Sprintf("the task's own release windows hold nothing back: what the rollouts of %s wait for is approved on the rollout, which the "+
			"task's workloads name (slipway rollout approve NAMESPACE/NAME)", m.named(rolling))
	}
	return "the task waits for no release window: there is nothing to approve"
}
