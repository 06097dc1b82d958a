package machine

import (
	"fmt"
	"time"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// Failure is how an action's activity failed.
type Failure struct {
	// Kind is the failure's kind, "" for an error that nobody typed. System trouble of every sort is Unreachable or Forbidden.
	Kind    failure.Kind
	Message string
	// Holder is the claim in the way, for Claimed.
	Holder string
	// SpentSeconds is what the action has used of its deadline.
	SpentSeconds int64
	// Move are the pods' numbers of a WorkloadFailed or a Drift, where they are known.
	Move *rollout.MoveResult
}

// trouble is what holds a rollout until somebody decides.
type trouble struct {
	Kind    failure.Kind `json:"kind"`
	Message string       `json:"message"`
	// Pods says that it was found on the workload itself, or on its pods, rather than on what routes to it.
	Pods bool `json:"pods,omitempty"`
}

// The first and the longest pause before a party that answers with system trouble at once is tried again.
const (
	againFirst = time.Minute
	againMost  = 10 * time.Minute
)

// Failed takes how an action failed, and decides by the failure's kind: what is the business's holds the rollout or turns it
// round, what is the system's is tried again for as long as it takes.
func (m *Machine) Failed(f Failure, now time.Time) {
	a := *m.running
	m.running, m.interrupted = nil, false
	m.s.Observed = m.s.Observed && (a.Kind != ActMove || f.Kind.System()) // what a Move has seen need not be looked at once more
	if f.Move != nil {
		m.takeNumbers(*f.Move)
	}
	if a.Kind == ActComplete {
		m.s.Stage = stageOver // nothing is owed to anybody: it closes without its record
		return
	}
	if f.Kind.System() {
		m.unreachable(a, f, now)
		return
	}
	m.s.Approved = 0 // what has failed was not what somebody approved
	m.reached()
	if a.restores {
		m.s.RoutesBack = nil
	}
	// a Move that fails has brought the workload to rest before, where that can be done
	m.s.PodsUnsettled = m.s.PodsUnsettled && a.Kind != ActMove
	if m.knowsTheWayOn(a, f) || m.isRedeclared(a, f) {
		return
	}
	// Of an action that was being given up anyway, or only brought to rest what is held, it is what holds it that somebody has to know.
	held := a.epoch == m.epoch && m.s.Trouble != nil
	if mattersLess := a.epoch != m.epoch || (a.Halts() || a.restores) && held; !mattersLess || lost(f.Kind) {
		m.trouble(a, f, now)
	} else if held && a.restores {
		m.policyDecides(rollout.VerbPause, f.Message, now)
	}
}

// knowsTheWayOn says whether a failure needs nobody: what is to follow from it is decided.
func (m *Machine) knowsTheWayOn(a Action, f Failure) bool {
	switch {
	case a.Kind == ActBegin:
		return m.failedToBegin(f)
	case a.Kind == ActHold && m.s.Stage == stageAdopt && (f.Kind == failure.NotFound || f.Kind == failure.Refused):
		m.nextMove() // it was deleted: there is nothing to leave
		return true
	case a.Kind == ActRoute && f.Kind == failure.Claimed && f.Holder != "" && f.Holder != m.s.TakeOver:
		m.s.Holder = f.Holder // what a dead release holds is taken over
		return true
	}
	return false
}

// lost says that the workload is not the rollout's any more.
func lost(k failure.Kind) bool { return k == failure.Gone || k == failure.ClaimLost }

// failedToBegin handles what says that nothing was done: the rollout closes. Another's claim is asked after first.
func (m *Machine) failedToBegin(f Failure) bool {
	switch f.Kind {
	case failure.Claimed:
		if f.Holder == "" || f.Holder == m.s.TakeOver {
			m.giveUp(f.Message)
		} else {
			m.s.Holder, m.s.Claimed = f.Holder, false
		}
	case failure.Refused, failure.NotFound, failure.Gone, failure.ClaimLost:
		m.giveUp(f.Message)
	default:
		return false
	}
	return true
}

// trouble holds the rollout, or rolls it back where the policy says so.
func (m *Machine) trouble(a Action, f Failure, now time.Time) {
	forward := m.s.Stage == stageHold || m.s.Stage == stageSteps || m.s.Stage == stageFinal && m.s.Ending.Side() == rollout.SideNew
	if f.Kind == failure.WorkloadFailed && forward && m.setup.Spec.Policy.OnFailure == strategy.OnFailureRollback {
		m.policyDecides(rollout.VerbRollback, f.Message+"; the policy rolls back", now)
		m.rollBack(now)
		return
	}
	unpinnable := a.Kind == ActRoute && a.Route.Action == rollout.RoutePin && f.Kind == failure.WorkloadFailed && m.s.Moved
	m.s.Trouble = &trouble{Kind: f.Kind, Message: f.Message, Pods: a.Kind == ActMove || unpinnable}
	if f.Kind != failure.Drift {
		m.s.Status.Phase = rollout.PhaseFailed
	}
	if f.Kind == failure.WorkloadFailed && forward {
		m.policyDecides(rollout.VerbPause, f.Message+"; the policy waits for somebody to decide", now)
	}
}

// unreachable tries the same action again: at first without a limit, and after a pause where the party answers with trouble at once.
func (m *Machine) unreachable(a Action, f Failure, now time.Time) {
	m.s.Unreachable, m.s.SpentSeconds = f.Message, f.SpentSeconds
	if a.NoPickUpTimeout || m.s.UnreachableCount > 0 {
		pause := againFirst
		for i := 1; i < m.s.UnreachableCount && pause < againMost; i++ {
			pause *= 2
		}
		m.s.AgainAt = new(now.Add(min(pause, againMost)))
	}
	m.s.UnreachableCount++
}

func (m *Machine) unreachableReason() string {
	return fmt.Sprintf("%s: party %s cannot do its part: %s; it goes on by itself when that is over", m.place(), m.s.Status.Party,
		m.s.Unreachable)
}

// held is the rest in which somebody has to decide.
func (m *Machine) held() Action {
	t := m.s.Trouble
	a := Action{Kind: ActRest, waits: rollout.WaitResume}
	switch t.Kind {
	case failure.Drift:
		a.waits = rollout.WaitDrift
		a.why = fmt.Sprintf("%s: %s; retry puts back what this release wrote, %s", m.place(), t.Message, m.waysOut())
	case failure.Gone:
		a.why = fmt.Sprintf("%s: %s; stop gives the traffic back and ends it", m.place(), t.Message)
	case failure.ClaimLost:
		a.why = fmt.Sprintf("%s: %s; stop to frozen abandons it", m.place(), t.Message)
	default:
		a.why = fmt.Sprintf("%s failed: %s; retry tries it again, %s", m.place(), t.Message, m.waysOut())
	}
	return a
}

// makeSafe makes safe what is held. Pods that a Move has left in the middle of a step come to rest.
//
// Traffic goes to the stable pods when somebody else has edited the workload: its controller now replaces pods of the new version first,
// and of an extra workload's partner the stable ones. No request meets a Service that nobody serves.
func (m *Machine) makeSafe() (Action, bool) {
	t := m.s.Trouble
	if m.s.PodsUnsettled && m.inSteps() && !lost(t.Kind) {
		return m.halt(t.Message), true
	}
	if t.Kind != failure.Drift || !t.Pods || m.s.Stage != stageSteps || !m.setup.Spec.Strategy.HasTraffic() {
		return m.putRoutesBack()
	}
	action := rollout.RouteToStable
	if m.s.Routed == no {
		if m.setup.Spec.Strategy.Style != strategy.StyleCanary || m.s.Pinned == no {
			return Action{}, false
		}
		action = rollout.RouteUnpin
	}
	a := m.route(action, strategy.Traffic{})
	a.why += ", since " + t.Message
	return a, true
}

// waysOut are the verbs other than retry that end what has failed.
func (m *Machine) waysOut() string {
	if m.s.Ending == rollout.EndRollback || m.s.Stage == stageAdopt {
		return "stop to frozen leaves it as it is"
	}
	return "rollback or stop ends it"
}
