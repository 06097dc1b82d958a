package machine

import (
	"fmt"
	"time"

	"slipway.io/slipway/release/backoff"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// Failure is how an action's activity failed.
type Failure struct {
	// Kind is the failure's kind, "" for an untyped error. Every system failure is Unreachable or Forbidden.
	Kind    failure.Kind
	Message string
	// Holder is the blocking claim, for Claimed.
	Holder string
	// SpentSeconds is how much of its deadline the action has used.
	SpentSeconds int64
	// Move has the numbers of the pods at a WorkloadFailed or a Drift; nil: unknown.
	Move *rollout.MoveResult
}

// trouble is what holds a rollout until an operator decides.
type trouble struct {
	Kind    failure.Kind `json:"kind"`
	Message string       `json:"message"`
	// Pods is true if the trouble is on the workload or its pods, rather than on what routes to it.
	Pods bool `json:"pods,omitempty"`
}

// minRetryPause and maxRetryPause bound the pause before a party that fails at once is retried. The pause doubles each
// time.
const (
	minRetryPause = time.Minute
	maxRetryPause = 10 * time.Minute
)

// Failed takes the failure of the running action. A failure of the release holds the rollout or rolls it back; a
// failure of the system is retried without limit.
func (m *Machine) Failed(f Failure, now time.Time) {
	a := *m.running
	m.running = nil
	// a Move has just inspected the change
	m.s.ChangeObserved = m.s.ChangeObserved && (a.Kind != ActMove || f.Kind.System())
	if f.Move != nil {
		m.updateNumbers(*f.Move)
	}
	if a.Kind == ActComplete {
		m.s.Stage = stageDone // nothing is left to restore: the workflow closes without its record
		return
	}
	if f.Kind.System() {
		m.retryUnreachable(a, f, now)
		return
	}
	m.s.ApprovedVisit = 0 // an approval does not cover a failed state
	m.answered(a)
	if a.restores {
		m.s.RouteRestore = nil
	}
	// a failing Move has settled the workload before, where that is possible; a crash has not
	m.s.PodsUnsettled = m.s.PodsUnsettled && (a.Kind != ActMove || !f.Kind.Known())
	if m.resolvedAutomatically(a, f) || m.handleRedeclared(a, f) {
		return
	}
	// A failure of an action that only makes a held rollout safe must not replace the trouble that holds it.
	held := m.s.Trouble != nil
	if mattersLess := (a.Halts() || a.restores) && held; !mattersLess || workloadLost(f.Kind) {
		m.onTrouble(a, f, now)
	} else if held && a.restores {
		m.notePolicy(rollout.VerbPause, f.Message, now)
	}
}

// resolvedAutomatically reports whether the failure has a defined follow-up that needs no operator (and applies it).
func (m *Machine) resolvedAutomatically(a Action, f Failure) bool {
	switch {
	case a.Kind == ActBegin:
		return m.beginFailed(f)
	case a.Kind == ActJoinTraffic && m.s.Stage == stageAdopt &&
		(f.Kind == failure.NotFound || f.Kind == failure.Refused):
		m.nextFinalMove() // the TrafficRouting was deleted: there is nothing to leave
		return true
	case a.Kind == ActRoute && f.Kind == failure.Claimed && f.Holder != "" && f.Holder != m.s.TakeOver:
		m.s.BlockingClaim = f.Holder // a dead release's claim is taken over
		return true
	}
	return false
}

// workloadLost reports whether the workload no longer belongs to the rollout.
func workloadLost(k failure.Kind) bool { return k == failure.Gone || k == failure.ClaimLost }

// beginFailed ends the rollout after a failure that means that nothing was done. A claim of another release is checked
// first.
func (m *Machine) beginFailed(f Failure) bool {
	switch f.Kind {
	case failure.Claimed:
		if f.Holder == "" || f.Holder == m.s.TakeOver {
			m.giveUp(f.Message)
		} else {
			m.s.BlockingClaim, m.s.MayHoldClaim = f.Holder, false
		}
	case failure.Refused, failure.NotFound, failure.Gone, failure.ClaimLost:
		m.giveUp(f.Message)
	default:
		return false
	}
	return true
}

// onTrouble holds the rollout, or rolls it back where the policy says so.
func (m *Machine) onTrouble(a Action, f Failure, now time.Time) {
	forward := m.s.Stage == stageJoin || m.s.Stage == stageSteps || m.s.Stage == stageFinal &&
		m.s.Ending.Side() == rollout.SideNew
	if f.Kind == failure.WorkloadFailed && forward && m.setup.Spec.Policy.OnFailure == strategy.OnFailureRollback {
		m.notePolicy(rollout.VerbRollback, f.Message+"; the policy rolls back", now)
		m.rollBack(now)
		return
	}
	unpinnable := a.Kind == ActRoute && a.Route.Action == rollout.RoutePin && f.Kind == failure.WorkloadFailed &&
		m.s.MoveStarted
	m.s.Trouble = &trouble{Kind: f.Kind, Message: f.Message, Pods: a.Kind == ActMove || unpinnable}
	if f.Kind != failure.Drift {
		m.s.Status.Phase = rollout.PhaseFailed
	}
	if f.Kind == failure.WorkloadFailed && forward {
		m.notePolicy(rollout.VerbPause, f.Message+"; the policy waits for an operator", now)
	}
}

// retryUnreachable retries the same action: at first without a time limit for its start, later after a pause if the
// party fails at once.
func (m *Machine) retryUnreachable(a Action, f Failure, now time.Time) {
	m.s.Unreachable = f.Message
	m.spend(a, f.SpentSeconds)
	if a.NoPickUpTimeout || m.s.UnreachableCount > 0 {
		m.s.RetryAt = new(now.Add(backoff.After(m.s.UnreachableCount-1, minRetryPause, maxRetryPause)))
	}
	m.s.UnreachableCount++
}

func (m *Machine) unreachableReason() string {
	return fmt.Sprintf("%s: party %s is unavailable: %s; the rollout continues by itself when the party is back",
		m.position(), m.s.Status.Party, m.s.Unreachable)
}

// awaitOperator is the wait in which an operator has to decide.
func (m *Machine) awaitOperator() Action {
	t := m.s.Trouble
	a := Action{Kind: ActWait, waitKind: rollout.WaitResume}
	switch t.Kind {
	case failure.Drift:
		a.waitKind = rollout.WaitDrift
		a.reason = fmt.Sprintf("%s: %s; retry restores what this release wrote, %s", m.position(), t.Message,
			m.exitVerbs())
	case failure.Gone:
		a.reason = fmt.Sprintf("%s: %s; stop restores the traffic and ends it", m.position(), t.Message)
	case failure.ClaimLost:
		a.reason = fmt.Sprintf("%s: %s; stop to frozen abandons it", m.position(), t.Message)
	default:
		a.reason = fmt.Sprintf("%s failed: %s; retry repeats it, %s", m.position(), t.Message, m.exitVerbs())
	}
	return a
}

// makeSafe makes a held rollout safe. Pods that a Move left in the middle of a step are settled.
//
// If another client has edited the workload, traffic goes to the stable pods: the workload's controller now replaces
// pods of the new version first, or, with an extra Deployment, the stable ones. No Service is left without ready pods.
func (m *Machine) makeSafe() (Action, bool) {
	t := m.s.Trouble
	if m.s.PodsUnsettled && m.inSteps() && !workloadLost(t.Kind) {
		return m.halt(t.Message), true
	}
	if t.Kind != failure.Drift || !t.Pods || m.s.Stage != stageSteps || !m.routesTraffic() {
		return m.nextRouteRestore()
	}
	action := rollout.RouteToStable
	if m.s.Routed == no {
		if m.setup.Spec.Strategy.Style != strategy.StyleCanary || m.s.Pinned == no {
			return Action{}, false
		}
		action = rollout.RouteUnpin
	}
	a := m.route(action, strategy.Traffic{})
	a.reason += ", since " + t.Message
	return a, true
}

// exitVerbs names the verbs other than retry that end a failed rollout.
func (m *Machine) exitVerbs() string {
	if m.s.Ending == rollout.EndRollback || m.s.Stage == stageAdopt {
		return "stop to frozen leaves it unchanged"
	}
	return "rollback or stop ends it"
}
