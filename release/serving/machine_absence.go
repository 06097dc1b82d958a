package serving

import (
	"fmt"
	"slices"
	"time"

	"slipway.io/slipway/release/failure"
)

// lostLonger is how much longer than twice its budget a try may take that has not reached the cluster: attempts have pauses of their own.
const lostLonger = time.Minute

// Interrupted says that a party's cluster is unreachable past the budget, or that its worker lacks a permission there: no failure; the
// party counts as one that is away, and the step is tried again. An update waits until the deadline.
func (m *Machine) Interrupted(party int, step Step, trouble *failure.Error, now time.Time) {
	if m.Wanted(party) == step {
		p := &m.s.Parties[party]
		budget := time.Duration(m.in.UnreachableBudgetSeconds) * time.Second
		if p.ClusterUnreachable == "" || now.Sub(p.Again) > 2*budget+lostLonger { // the try took longer: it was reached in between
			p.ClusterUnreachableSince, p.Tries = now.Add(-budget), 0
		}
		p.WorkerUnreachable, p.ClusterUnreachable = "", trouble.Message
		longest := pauseLost
		if m.waitsForPerson() { // nobody counts how long it lasts while a person is waited for, which may be weeks
			longest = pauseLongest
		}
		p.tryAgain(now, longest)
		if m.waits(party) && now.Sub(latest(m.from(party), p.ClusterUnreachableSince)) >= m.in.Policy.PartyDeadline() {
			what := "been out of reach"
			if trouble.Kind == failure.Forbidden {
				what = "lacked a permission"
			}
			p.Failed = fmt.Sprintf("it has %s for longer than %s: %s", what, m.in.Policy.PartyDeadline(), trouble.Message)
		}
	}
	m.advance(now)
}

// Presence is told whether the workers of a queue are there.
func (m *Machine) Presence(s PresenceSignal, now time.Time) {
	for i, p := range m.in.Parties {
		if p.Queue == s.Queue {
			m.s.Parties[i].WorkerUnreachable, m.s.Parties[i].WorkerUnreachableSince = s.Unreachable, s.Since
		}
	}
	m.advance(now)
}

// Deadline is when the next absent party has been waited for long enough; false when none is waited for with an end.
func (m *Machine) Deadline() (at time.Time, ok bool) {
	for i := range m.s.Parties {
		if until, counts := m.waitsUntil(i); counts && (!ok || until.Before(at)) {
			at, ok = until, true
		}
	}
	return at, ok
}

// waits says whether an update waits for an absent party with a deadline. While a person is waited for, only parties that have begun have
// one.
func (m *Machine) waits(party int) bool {
	return m.needs(party) && (m.s.Parties[party].Begun || !m.waitsForPerson())
}

// needs says whether an update cannot go on without a party.
func (m *Machine) needs(party int) bool {
	p := m.s.Parties[party]
	return m.in.Kind == KindUpdate && p.Failed == "" && (m.s.Stage == StagePrepare || m.s.Stage == StageCommit && !p.Applied)
}

// waitsUntil is until when an update waits for a party that is away.
func (m *Machine) waitsUntil(party int) (time.Time, bool) {
	p := m.s.Parties[party]
	if p.WorkerUnreachable == "" || !m.waits(party) {
		return time.Time{}, false
	}
	return latest(m.from(party), p.WorkerUnreachableSince).Add(m.in.Policy.PartyDeadline()), true
}

// from is since when the absence of a party counts: what was before the stage, or while a person was waited for, does not.
func (m *Machine) from(party int) time.Time {
	return latest(m.s.Began, m.s.Committed, m.s.Parties[party].Freed)
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// Tick is told the time when a Deadline has passed.
func (m *Machine) Tick(now time.Time) { m.advance(now) }

// expire fails the absent parties that have been waited for long enough.
func (m *Machine) expire(now time.Time) {
	for i := range m.s.Parties {
		p := &m.s.Parties[i]
		if until, counts := m.waitsUntil(i); counts && !now.Before(until) {
			p.Failed = fmt.Sprintf("it has been away for longer than %s: %s", m.in.Policy.PartyDeadline(), p.WorkerUnreachable)
		}
	}
}
