package party

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)

func seen(identity string, before time.Duration) Worker {
	return Worker{Identity: identity, Host: "node-1", StartedAt: noon.Add(-time.Hour), LastSeenAt: noon.Add(-before)}
}

func stopped(w Worker) Worker {
	w.Stopping = true
	return w
}

func TestJudge(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason   string
		heard    []Worker
		want     Reachability
		workers  int
		lastSeen time.Time
		sentence string
	}{
		"Nobody": {
			"no worker was ever heard of", nil, Unreachable, 0, time.Time{},
			"no worker of queue q was ever seen, as far as Temporal remembers: start one (slipway worker --party)",
		},
		"Fresh": {
			"one heartbeat within the last 20 s", []Worker{seen("a", 3*time.Second)}, Reachable, 1, noon.Add(-3 * time.Second),
			"worker a on node-1 polls queue q, last seen 3s ago",
		},
		"Edge": {
			"silent for just 20 s is not longer than that", []Worker{seen("a", Silence)}, Reachable, 1, noon.Add(-Silence),
			"worker a on node-1 polls queue q, last seen 20s ago",
		},
		"Silent": {
			"silent for longer: it was killed, or cut off", []Worker{seen("a", Silence+time.Millisecond)}, Unreachable, 0, noon.Add(-Silence - time.Millisecond),
			"the last worker of queue q, a on node-1, was last seen at 2026-11-02T11:59:39Z (20s ago) and is silent for more than 20s: look whether it runs and reaches Temporal",
		},
		"Stopped": {
			"a worker that took its leave is gone at once", []Worker{stopped(seen("a", time.Second))}, Unreachable, 0, noon.Add(-time.Second),
			"the last worker of queue q, a on node-1, was stopped at 2026-11-02T11:59:59Z (1s ago): start one",
		},
		"Replaced": {
			"the worker of before, stopped later than the new one was last heard of, does not hide it",
			[]Worker{stopped(seen("old", time.Second)), seen("new", 4*time.Second)}, Reachable, 1, noon.Add(-time.Second),
			"worker new on node-1 polls queue q, last seen 1s ago",
		},
		"Several": {
			"one of three is silent", []Worker{seen("b", time.Second), seen("gone", time.Hour), seen("a", 2*time.Second)}, Reachable, 2, noon.Add(-time.Second),
			"2 workers poll queue q, last seen 1s ago",
		},
		"FastClock": {
			"a worker whose clock is fast is there, and not seen in the future", []Worker{seen("a", -time.Minute)}, Reachable, 1, noon.Add(time.Minute),
			"worker a on node-1 polls queue q, last seen 0s ago",
		},
		"HostInIdentity": {
			"an identity that names its host does not name it twice", []Worker{seen("slipway-1@node-1-7", 0)}, Reachable, 1, noon,
			"worker slipway-1@node-1-7 polls queue q, last seen 0s ago",
		},
		"Nameless": {
			"a worker need not have a name", []Worker{seen("", 0)}, Reachable, 1, noon, "worker without a name on node-1 polls queue q, last seen 0s ago",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Judge("q", test.heard, noon)
			require.Equal(t, test.want, got.Reachable, test.reason)
			require.Equal(t, test.sentence, got.Reason, test.reason)
			require.Len(t, got.Workers, test.workers, test.reason)
			require.Equal(t, test.lastSeen, got.LastSeenAt, test.reason)
		})
	}
}

func TestSilentAt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason string
		heard  []Worker
		want   time.Time
	}{
		"Nobody":  {"who is not there cannot fall silent", nil, time.Time{}},
		"Silent":  {"nor can who is silent already", []Worker{seen("a", time.Minute)}, time.Time{}},
		"Stopped": {"nor who took its leave", []Worker{stopped(seen("a", time.Second))}, time.Time{}},
		"One":     {"20 s after its last report, however long ago that was", []Worker{seen("a", 17*time.Second)}, noon.Add(3 * time.Second)},
		"Several": {"the one that was heard of last keeps the party there", []Worker{seen("a", 17*time.Second), seen("b", 4*time.Second)}, noon.Add(16 * time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, ok := Judge("q", test.heard, noon).SilentAt()
			require.Equal(t, test.want, at, test.reason)
			require.Equal(t, !test.want.IsZero(), ok, test.reason)
		})
	}
}

// Who ends waits for a sign of life of the others.
func TestSilentSince(t *testing.T) {
	t.Parallel()
	former := Judge("q", []Worker{seen("dead", 7*time.Second), seen("alive", 7*time.Second)}, noon)
	now := Judge("q", []Worker{seen("dead", 7*time.Second), seen("alive", 2*time.Second), seen("new", time.Second)}, noon)
	require.Equal(t, []Worker{seen("dead", 7*time.Second)}, now.SilentSince(former))
	require.Empty(t, now.SilentSince(UnknownPresence("Temporal is away")), "of whom nothing was known is heard of now")
}

func TestWorkersComeInOrder(t *testing.T) {
	t.Parallel()
	again := seen("a", 0)
	again.StartedAt = noon
	got := Judge("q", []Worker{again, seen("b", 0), seen("a", 0)}, noon)
	require.Equal(t, []Worker{seen("a", 0), again, seen("b", 0)}, got.Workers, "by identity, then by their start")
}

func TestCannotTell(t *testing.T) {
	t.Parallel()
	require.Equal(t, Presence{Reachable: Unknown, Reason: "Temporal is away"}, UnknownPresence("Temporal is away"), "unknown is never unreachable")
}
