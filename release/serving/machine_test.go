package serving_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
)

// prepared is an update of alice and bob that both have said yes to.
func prepared(change func(in *serving.Input)) *serving.Machine {
	in := inputOf(serving.KindUpdate, "alice", "bob")
	change(&in)
	m := serving.NewMachine(in, noon)
	m.Done(0, serving.StepPrepare, noon)
	m.Done(1, serving.StepPrepare, noon)
	return m
}

func asIs(*serving.Input) {}

func absent(m *serving.Machine, queue string, since, now time.Duration) {
	m.Presence(serving.PresenceSignal{Queue: queue, Unreachable: "silent", Since: noon.Add(since)}, noon.Add(now))
}

func TestHowLongAnUpdateWaitsForTheAbsent(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		do     func(m *serving.Machine)
		until  time.Duration
	}{
		"nobody absent": {reason: "nobody is waited for", do: func(*serving.Machine) {}, until: -1},
		"away before it began": {reason: "what was before the commit does not count", do: func(m *serving.Machine) { absent(m, "q-bob", -time.Hour, 0) },
			until: 10 * time.Minute},
		"away since": {reason: "it counts from when the party was last heard of", do: func(m *serving.Machine) { absent(m, "q-bob", time.Minute, 80*time.Second) },
			until: 11 * time.Minute},
		"two away": {reason: "the first to run out has all go back", until: 11 * time.Minute, do: func(m *serving.Machine) {
			absent(m, "q-bob", 2*time.Minute, 150*time.Second)
			absent(m, "q-alice", time.Minute, 150*time.Second)
		}},
		"has done its part": {reason: "who runs the new version may be away", until: -1, do: func(m *serving.Machine) {
			m.Done(1, serving.StepApply, noon)
			absent(m, "q-bob", time.Minute, 80*time.Second)
		}},
		"back": {reason: "who is back is not waited for", until: -1, do: func(m *serving.Machine) {
			absent(m, "q-bob", time.Minute, 80*time.Second)
			m.Presence(serving.PresenceSignal{Queue: "q-bob"}, noon.Add(2*time.Minute))
		}},
		"somebody else's queue": {reason: "another party's worker is nobody here", do: func(m *serving.Machine) { absent(m, "q-carol", 0, 0) }, until: -1},
		"going back": {reason: "the way back of the absent is owed without an end", until: -1, do: func(m *serving.Machine) {
			absent(m, "q-bob", 0, 0)
			m.Failed(0, serving.StepApply, "bad", noon)
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := prepared(asIs)
			tc.do(m)
			at, waits := m.Deadline()
			require.Equal(t, tc.until >= 0, waits, tc.reason)
			if waits {
				require.Equal(t, noon.Add(tc.until), at, tc.reason)
				m.Tick(at.Add(-time.Second))
				require.Equal(t, serving.StageCommit, m.Stage(), "not a second earlier")
				m.Tick(at)
				require.Equal(t, serving.StageBack, m.Stage())
			}
		})
	}
}

func TestOwnDeadlineOfThePolicy(t *testing.T) {
	t.Parallel()
	m := prepared(func(in *serving.Input) { in.Policy.PartyDeadlineSeconds = 5 })
	absent(m, "q-bob", -time.Hour, 0)
	at, _ := m.Deadline()
	require.Equal(t, noon.Add(5*time.Second), at)
	m.Tick(at)
	require.Equal(t, "party bob: it has been away for longer than 5s: silent; every party goes back to the version of before", m.Outcome().Message)
}

func TestClusterOutOfReachIsWaitedForLikeAWorker(t *testing.T) {
	t.Parallel()
	trouble := func(m *serving.Machine, seconds int) {
		m.Interrupted(1, serving.StepApply, failure.New(failure.Unreachable, "no route"), noon.Add(time.Duration(seconds)*time.Second))
	}
	t.Run("one outage", func(t *testing.T) {
		t.Parallel()
		m := prepared(asIs)
		for _, at := range []int{120, 255, 405, 585} {
			trouble(m, at)
			require.Equal(t, serving.StageCommit, m.Stage(), "at %d s", at)
			_, waits := m.Deadline()
			require.False(t, waits, "it may be reached again without a word: only a report ends the wait")
		}
		trouble(m, 765)
		require.Equal(t, serving.StageBack, m.Stage())
	})
	t.Run("two outages", func(t *testing.T) {
		t.Parallel()
		m := prepared(asIs)
		trouble(m, 400)
		trouble(m, 1100) // the try that began at 415 s ran for long, so that the cluster answered in between
		require.Equal(t, serving.StageCommit, m.Stage(), "what lies between does not count")
		trouble(m, 1250)
		trouble(m, 1400)
		require.Equal(t, serving.StageCommit, m.Stage())
		trouble(m, 1600)
		require.Equal(t, serving.StageBack, m.Stage())
	})
	t.Run("a lost permission", func(t *testing.T) {
		t.Parallel()
		m := prepared(asIs)
		for _, seconds := range []int{120, 255, 405, 585, 765} {
			m.Interrupted(1, serving.StepApply, failure.New(failure.Forbidden, "it may not patch deployments"), noon.Add(time.Duration(seconds)*time.Second))
		}
		require.Contains(t, m.Outcome().Message, "party bob: it has lacked a permission for longer than 10m0s: it may not patch deployments",
			"its cluster answers: whoever is told that it does not looks in the wrong place")
	})
	t.Run("what it says", func(t *testing.T) {
		t.Parallel()
		m := prepared(asIs)
		trouble(m, 120)
		require.Equal(t, serving.Outcome{Version: "new", Reason: serving.ReasonPartyUnreachable, Message: "party bob: no route; it is tried again",
			Failures: map[int]string{}, Complete: map[int]time.Time{}}, m.Outcome())
		m.Done(1, serving.StepApply, noon.Add(200*time.Second))
		require.Empty(t, m.Outcome().Reason, "it is over when the party answers")
	})
}

func TestPausesGrow(t *testing.T) {
	t.Parallel()
	m := serving.NewMachine(inputOf(serving.KindDelete, "alice"), noon)
	require.True(t, m.NotBefore(0).IsZero(), "what was not tried begins at once")
	now := noon
	for _, expected := range []time.Duration{15, 30, 60, 120, 240, 480, 600, 600} {
		m.Failed(0, serving.StepRemove, "no permission", now)
		require.Equal(t, now.Add(expected*time.Second), m.NotBefore(0))
		require.Equal(t, serving.StepRemove, m.Wanted(0), "it is owed")
		now = m.NotBefore(0)
	}
	for range 100 {
		m.Failed(0, serving.StepRemove, "no permission", now)
	}
	require.Equal(t, now.Add(10*time.Minute), m.NotBefore(0))
	require.Equal(t, "no permission", m.KnownFailure(0), "it has been told: from now on the server tries alone")
	require.Contains(t, m.Message(), "alice removes it; the last tries failed, and it is tried again every 10m0s: no permission")
}

func TestWhatIsOwedIsToldUntilItIsKnown(t *testing.T) {
	t.Parallel()
	m := serving.NewMachine(inputOf(serving.KindDelete, "alice"), noon)
	for range 2 {
		m.Failed(0, serving.StepRemove, "no permission", noon)
		require.Empty(t, m.KnownFailure(0), "the first failures are told, so that somebody hears of them")
		require.Contains(t, m.Message(), "alice removes it; the last try failed, and it is tried again at ")
	}
	m.Failed(0, serving.StepRemove, "no permission", noon)
	require.Equal(t, "no permission", m.KnownFailure(0))
	m.Failed(0, serving.StepRemove, "namespace gone", noon)
	require.Equal(t, "namespace gone", m.KnownFailure(0), "another reason was worth telling")
	m.Done(0, serving.StepRemove, noon)
	require.Empty(t, m.KnownFailure(0))
}

// A creation waits without an end for a party that lacks a permission: told each minute, it would end in the history limit after some days.
func TestTroubleThatNobodyWaitsForWithAnEndIsToldOnce(t *testing.T) {
	t.Parallel()
	m := serving.NewMachine(inputOf(serving.KindCreate, "alice", "bob"), noon)
	require.Empty(t, m.KnownFailure(0))
	m.Interrupted(0, serving.StepPrepare, failure.New(failure.Forbidden, "no permission"), noon)
	require.Equal(t, "no permission", m.KnownFailure(0), "from now on the server tries alone")
	require.Empty(t, m.KnownFailure(1))
	m.Done(0, serving.StepPrepare, noon)
	require.Empty(t, m.KnownFailure(0))

	update := serving.NewMachine(inputOf(serving.KindUpdate, "alice", "bob"), noon)
	update.Interrupted(0, serving.StepPrepare, failure.New(failure.Forbidden, "no permission"), noon)
	require.Empty(t, update.KnownFailure(0), "an update counts how long it lasts")
}

func TestARemovalThatFailsIsTold(t *testing.T) {
	t.Parallel()
	m := serving.NewMachine(inputOf(serving.KindDelete, "alice"), noon)
	told := m.Outcome()
	m.Failed(0, serving.StepRemove, "it lacks a permission", noon)
	require.True(t, m.Changed(told), "who waits for the deletion wants to know")
	require.Equal(t, map[int]string{0: "it lacks a permission"}, m.Outcome().Failures)
	require.False(t, m.Released(), "and it is not given up")
	m.Done(0, serving.StepRemove, noon)
	require.Empty(t, m.Outcome().Failures)
	require.True(t, m.Over())
}

func TestWhatIsTooLateChangesNothing(t *testing.T) {
	t.Parallel()
	m := serving.NewMachine(inputOf(serving.KindCreate, "alice", "bob"), noon)
	absent(m, "q-bob", 0, 0)
	m.Done(0, serving.StepPrepare, noon)
	require.Equal(t, serving.StageCommit, m.Stage(), "a creation does not wait for the absent")
	m.Failed(1, serving.StepPrepare, "its worker has died", noon)
	m.Done(0, serving.StepApply, noon)
	m.Done(1, serving.StepApply, noon)
	require.True(t, m.Outcome().Served)
}

func TestSupersedeByWhatIsNotNewer(t *testing.T) {
	t.Parallel()
	m := prepared(asIs)
	m.Supersede(serving.SupersedeSignal{By: "serving/s1/3", Generation: 3})
	m.Supersede(serving.SupersedeSignal{By: "serving/s1/2", Generation: 2})
	require.False(t, m.Superseded(), "an operation gives way to a newer one alone")
	m.Supersede(serving.SupersedeSignal{By: "serving/s1/4", Generation: 4})
	require.True(t, m.Superseded())
	require.Equal(t, "it gave way to serving/s1/4", m.Message())
}

func TestSequence(t *testing.T) {
	t.Parallel()
	in := inputOf(serving.KindUpdate, "alice", "bob", "carol", "bob")
	in.Policy = serving.Policy{Order: serving.OrderSequential, Parties: []string{"carol", "bob", "carol"}}
	m := serving.NewMachine(in, noon)
	for i := range in.Parties {
		m.Done(i, serving.StepPrepare, noon)
	}
	var order []int
	for !m.Over() {
		for i := range in.Parties {
			if m.Wanted(i) == serving.StepApply {
				order = append(order, i)
				m.Done(i, serving.StepApply, noon)
				break
			}
		}
	}
	require.Equal(t, []int{2, 1, 3, 0}, order, "those that are named first, all of one domain together, then the rest as the spec has them")
}
