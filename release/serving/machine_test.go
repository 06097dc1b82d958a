package serving_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
)

// prepared returns an update of alice and bob that both have passed the check.
func prepared(change func(in *serving.Input)) *serving.Machine {
	in := inputOf(serving.KindUpdate, "alice", "bob")
	change(&in)
	m := serving.NewMachine(in, noon)
	m.Done(0, serving.StepPrepare, noon)
	m.Done(1, serving.StepPrepare, noon)
	return m
}

func unchanged(*serving.Input) {}

func absent(m *serving.Machine, queue string, since, now time.Duration) {
	m.Presence(serving.PresenceSignal{Queue: queue, Unreachable: "silent", Since: noon.Add(since)}, noon.Add(now))
}

func TestDeadline_OfUnreachableParties(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		do     func(m *serving.Machine)
		until  time.Duration
	}{
		"all reachable": {reason: "no party is waited for", do: func(*serving.Machine) {}, until: -1},
		"away before it began": {reason: "absence before the commit does not count", do: func(m *serving.Machine) {
			absent(m, "q-bob", -time.Hour, 0)
		},
			until: 10 * time.Minute},
		"away since": {reason: "it counts from the last report of the worker", do: func(m *serving.Machine) {
			absent(m, "q-bob", time.Minute, 80*time.Second)
		},
			until: 11 * time.Minute},
		"two away": {reason: "the first deadline that expires rolls all back", until: 11 * time.Minute,
			do: func(m *serving.Machine) {
				absent(m, "q-bob", 2*time.Minute, 150*time.Second)
				absent(m, "q-alice", time.Minute, 150*time.Second)
			}},
		"has done its part": {reason: "a party that runs the new version may be unreachable", until: -1,
			do: func(m *serving.Machine) {
				m.Done(1, serving.StepApply, noon)
				absent(m, "q-bob", time.Minute, 80*time.Second)
			}},
		"reachable again": {reason: "a party that is reachable again has no deadline", until: -1,
			do: func(m *serving.Machine) {
				absent(m, "q-bob", time.Minute, 80*time.Second)
				m.Presence(serving.PresenceSignal{Queue: "q-bob"}, noon.Add(2*time.Minute))
			}},
		"other queue": {reason: "the worker of another queue does not matter", do: func(m *serving.Machine) {
			absent(m, "q-carol", 0, 0)
		}, until: -1},
		"rollback": {reason: "the rollback of an unreachable party has no deadline", until: -1,
			do: func(m *serving.Machine) {
				absent(m, "q-bob", 0, 0)
				m.Failed(0, serving.StepApply, "bad", noon)
			}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := prepared(unchanged)
			tc.do(m)
			at, waits := m.Deadline()
			require.Equal(t, tc.until >= 0, waits, tc.reason)
			if waits {
				require.Equal(t, noon.Add(tc.until), at, tc.reason)
				m.Tick(at.Add(-time.Second))
				require.Equal(t, serving.StageCommit, m.Stage(), "not before the deadline")
				m.Tick(at)
				require.Equal(t, serving.StageRollback, m.Stage())
			}
		})
	}
}

func TestDeadline_IsThatOfPolicy(t *testing.T) {
	t.Parallel()
	m := prepared(func(in *serving.Input) { in.Policy.PartyDeadlineSeconds = 5 })
	absent(m, "q-bob", -time.Hour, 0)
	at, _ := m.Deadline()
	require.Equal(t, noon.Add(5*time.Second), at)
	m.Tick(at)
	require.Equal(t, "party bob: its worker has been unreachable for longer than 5s: silent; every party goes back "+
		"to the previous version", m.Outcome().Message)
}

func TestUpdate_WaitsForUnreachableCluster(t *testing.T) {
	t.Parallel()
	trouble := func(m *serving.Machine, seconds int) {
		m.Interrupted(1, serving.StepApply, failure.New(failure.Unreachable, "no route"),
			noon.Add(time.Duration(seconds)*time.Second))
	}
	t.Run("one outage", func(t *testing.T) {
		t.Parallel()
		m := prepared(unchanged)
		for _, at := range []int{120, 255, 405, 585} {
			trouble(m, at)
			require.Equal(t, serving.StageCommit, m.Stage(), "at %d s", at)
			_, waits := m.Deadline()
			require.False(t, waits, "it may become reachable without a report: only a report ends the wait")
		}
		trouble(m, 765)
		require.Equal(t, serving.StageRollback, m.Stage())
	})
	t.Run("two outages", func(t *testing.T) {
		t.Parallel()
		m := prepared(unchanged)
		trouble(m, 400)
		trouble(m, 1100) // the attempt that began at 415 s took long, so the cluster was reachable in between
		require.Equal(t, serving.StageCommit, m.Stage(), "the time in between does not count")
		trouble(m, 1250)
		trouble(m, 1400)
		require.Equal(t, serving.StageCommit, m.Stage())
		trouble(m, 1600)
		require.Equal(t, serving.StageRollback, m.Stage())
	})
	t.Run("a lost permission", func(t *testing.T) {
		t.Parallel()
		m := prepared(unchanged)
		for _, seconds := range []int{120, 255, 405, 585, 765} {
			m.Interrupted(1, serving.StepApply, failure.New(failure.Forbidden, "it may not patch deployments"),
				noon.Add(time.Duration(seconds)*time.Second))
		}
		require.Contains(t, m.Outcome().Message, "party bob: it has lacked a permission for longer than 10m0s: it "+
			"may not patch deployments",
			"the cluster answers, so the message must not call it unreachable")
	})
	t.Run("message", func(t *testing.T) {
		t.Parallel()
		m := prepared(unchanged)
		trouble(m, 120)
		require.Equal(t, serving.Outcome{Version: "new", Reason: serving.ReasonPartyUnreachable,
			Message:  "party bob: no route; retrying",
			Failures: map[int]string{}, Complete: map[int]time.Time{}}, m.Outcome())
		m.Done(1, serving.StepApply, noon.Add(200*time.Second))
		require.Empty(t, m.Outcome().Reason, "it ends when the party responds")
	})
}

func TestRetryPause_DoublesUpToLimit(t *testing.T) {
	t.Parallel()
	m := serving.NewMachine(inputOf(serving.KindDelete, "alice"), noon)
	require.True(t, m.NotBefore(0).IsZero(), "the first attempt starts at once")
	now := noon
	for _, expected := range []time.Duration{15, 30, 60, 120, 240, 480, 600, 600} {
		m.Failed(0, serving.StepRemove, "no permission", now)
		require.Equal(t, now.Add(expected*time.Second), m.NotBefore(0))
		require.Equal(t, serving.StepRemove, m.NextStep(0), "it is retried")
		now = m.NotBefore(0)
	}
	for range 100 {
		m.Failed(0, serving.StepRemove, "no permission", now)
	}
	require.Equal(t, now.Add(10*time.Minute), m.NotBefore(0))
	require.Equal(t, "no permission", m.KnownFailure(0), "it has been reported: from now on Temporal retries alone")
	require.Contains(t, m.Message(), "alice is deleting its objects; the last attempts failed, retrying every 10m0s: "+
		"no permission")
}

func TestKnownFailure_IsSetAfterRepeatedReports(t *testing.T) {
	t.Parallel()
	m := serving.NewMachine(inputOf(serving.KindDelete, "alice"), noon)
	for range 2 {
		m.Failed(0, serving.StepRemove, "no permission", noon)
		require.Empty(t, m.KnownFailure(0), "the first failures are reported")
		require.Contains(t, m.Message(), "alice is deleting its objects; the last attempt failed, retrying at ")
	}
	m.Failed(0, serving.StepRemove, "no permission", noon)
	require.Equal(t, "no permission", m.KnownFailure(0))
	m.Failed(0, serving.StepRemove, "namespace deleted", noon)
	require.Equal(t, "namespace deleted", m.KnownFailure(0), "another reason is reported")
	m.Done(0, serving.StepRemove, noon)
	require.Empty(t, m.KnownFailure(0))
}

// A creation waits without a deadline for a party that lacks a permission: reporting it every minute would exceed the
// history limit after some days.
func TestKnownFailure_IsSetAtOnce_WhenPartyHasNoDeadline(t *testing.T) {
	t.Parallel()
	m := serving.NewMachine(inputOf(serving.KindCreate, "alice", "bob"), noon)
	require.Empty(t, m.KnownFailure(0))
	m.Interrupted(0, serving.StepPrepare, failure.New(failure.Forbidden, "no permission"), noon)
	require.Equal(t, "no permission", m.KnownFailure(0), "from now on Temporal retries alone")
	require.Empty(t, m.KnownFailure(1))
	m.Done(0, serving.StepPrepare, noon)
	require.Empty(t, m.KnownFailure(0))

	update := serving.NewMachine(inputOf(serving.KindUpdate, "alice", "bob"), noon)
	update.Interrupted(0, serving.StepPrepare, failure.New(failure.Forbidden, "no permission"), noon)
	require.Empty(t, update.KnownFailure(0), "an update measures how long it lasts")
}

func TestOutcome_ReportsFailedRemoval(t *testing.T) {
	t.Parallel()
	m := serving.NewMachine(inputOf(serving.KindDelete, "alice"), noon)
	before := m.Outcome()
	m.Failed(0, serving.StepRemove, "it lacks a permission", noon)
	require.True(t, m.Changed(before), "the failure is shown while the deletion waits")
	require.Equal(t, map[int]string{0: "it lacks a permission"}, m.Outcome().Failures)
	require.False(t, m.Released(), "and the removal is retried")
	m.Done(0, serving.StepRemove, noon)
	require.Empty(t, m.Outcome().Failures)
	require.True(t, m.Finished())
}

func TestFailed_IsIgnored_WhenStepIsNotCurrent(t *testing.T) {
	t.Parallel()
	m := serving.NewMachine(inputOf(serving.KindCreate, "alice", "bob"), noon)
	absent(m, "q-bob", 0, 0)
	m.Done(0, serving.StepPrepare, noon)
	require.Equal(t, serving.StageCommit, m.Stage(), "a creation does not wait for unreachable parties")
	m.Failed(1, serving.StepPrepare, "its worker has died", noon)
	m.Done(0, serving.StepApply, noon)
	m.Done(1, serving.StepApply, noon)
	require.True(t, m.Outcome().Served)
}

func TestSupersede_IsIgnored_WhenNotNewer(t *testing.T) {
	t.Parallel()
	m := prepared(unchanged)
	m.Supersede(serving.SupersedeSignal{By: "serving/s1/3", Generation: 3})
	m.Supersede(serving.SupersedeSignal{By: "serving/s1/2", Generation: 2})
	require.False(t, m.Superseded(), "an operation gives way only to a newer one")
	m.Supersede(serving.SupersedeSignal{By: "serving/s1/4", Generation: 4})
	require.True(t, m.Superseded())
	require.Equal(t, "superseded by serving/s1/4", m.Message())
}

func TestSequence_FollowsPolicyThenSpec(t *testing.T) {
	t.Parallel()
	in := inputOf(serving.KindUpdate, "alice", "bob", "carol", "bob")
	in.Policy = serving.Policy{Order: serving.OrderSequential, Parties: []string{"carol", "bob", "carol"}}
	m := serving.NewMachine(in, noon)
	for i := range in.Parties {
		m.Done(i, serving.StepPrepare, noon)
	}
	var order []int
	for !m.Finished() {
		for i := range in.Parties {
			if m.NextStep(i) == serving.StepApply {
				order = append(order, i)
				m.Done(i, serving.StepApply, noon)
				break
			}
		}
	}
	require.Equal(t, []int{2, 1, 3, 0}, order, "parties listed by the policy first, all of one domain together, then "+
		"the others in the order of the spec")
}
