package serving

import (
	"fmt"
	"slices"
	"time"

	"slipway.io/slipway/release/failure"
)

// unreachableGrace is added to twice the unreachable budget: an attempt that took longer must have reached the cluster
// in between, since attempts pause before they are retried.
const unreachableGrace = time.Minute

// Interrupted records that a party's cluster was unreachable for longer than the budget, or that its worker lacks a
// permission there. That is no failure: the party counts as unreachable, and the step is retried. An update waits for
// it until the deadline.
func (m *Machine) Interrupted(party int, step Step, trouble *failure.Error, now time.Time) {
	if m.NextStep(party) == step {
		p := &m.s.Parties[party]
		budget := time.Duration(m.in.UnreachableBudgetSeconds) * time.Second
		// the attempt took longer: the cluster was reached in between
		if p.ClusterUnreachable == "" || now.Sub(p.RetryAt) > 2*budget+unreachableGrace {
			p.ClusterUnreachableSince, p.Tries = now.Add(-budget), 0
		}
		p.WorkerUnreachable, p.ClusterUnreachable = "", trouble.Message
		longest := maxUnreachablePause
		if m.waitsForPerson() { // the deadline does not run while the operation waits for a user, which may take weeks
			longest = maxRetryPause
		}
		p.scheduleRetry(now, longest)
		if m.hasDeadline(party) && now.Sub(latest(m.absenceStart(party),
			p.ClusterUnreachableSince)) >= m.in.Policy.PartyDeadline() {
			what := "been unreachable"
			if trouble.Kind == failure.Forbidden {
				what = "lacked a permission"
			}
			p.Failed = fmt.Sprintf("it has %s for longer than %s: %s", what, m.in.Policy.PartyDeadline(),
				trouble.Message)
		}
	}
	m.advance(now)
}

// Presence records whether the workers of a queue are reachable.
func (m *Machine) Presence(s PresenceSignal, now time.Time) {
	for i, p := range m.in.Parties {
		if p.Queue == s.Queue {
			m.s.Parties[i].WorkerUnreachable, m.s.Parties[i].WorkerUnreachableSince = s.Unreachable, s.Since
		}
	}
	m.advance(now)
}

// Deadline returns when the deadline of the next unreachable party expires; false if no party has one.
func (m *Machine) Deadline() (at time.Time, ok bool) {
	for i := range m.s.Parties {
		if until, counts := m.waitsUntil(i); counts && (!ok || until.Before(at)) {
			at, ok = until, true
		}
	}
	return at, ok
}

// hasDeadline reports whether an update waits for an unreachable party with a deadline. While the operation waits for a
// user, only parties that have begun have one.
func (m *Machine) hasDeadline(party int) bool {
	return m.requires(party) && (m.s.Parties[party].Begun || !m.waitsForPerson())
}

// requires reports whether an update cannot proceed without a party.
func (m *Machine) requires(party int) bool {
	p := m.s.Parties[party]
	return m.in.Kind == KindUpdate && p.Failed == "" &&
		(m.s.Stage == StagePrepare || m.s.Stage == StageCommit && !p.Applied)
}

// waitsUntil returns until when an update waits for a party whose worker is unreachable.
func (m *Machine) waitsUntil(party int) (time.Time, bool) {
	p := m.s.Parties[party]
	if p.WorkerUnreachable == "" || !m.hasDeadline(party) {
		return time.Time{}, false
	}
	return latest(m.absenceStart(party), p.WorkerUnreachableSince).Add(m.in.Policy.PartyDeadline()), true
}

// absenceStart returns when the absence of a party starts to count: time before the current stage, or while the
// operation waited for a user, does not count.
func (m *Machine) absenceStart(party int) time.Time {
	return latest(m.s.Began, m.s.Committed, m.s.Parties[party].ResumedAt)
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// Tick advances the machine when a Deadline has passed.
func (m *Machine) Tick(now time.Time) { m.advance(now) }

// expire fails the unreachable parties whose deadline has passed.
func (m *Machine) expire(now time.Time) {
	for i := range m.s.Parties {
		p := &m.s.Parties[i]
		if until, counts := m.waitsUntil(i); counts && !now.Before(until) {
			p.Failed = fmt.Sprintf("its worker has been unreachable for longer than %s: %s",
				m.in.Policy.PartyDeadline(), p.WorkerUnreachable)
		}
	}
}
