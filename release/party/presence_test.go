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

func TestPresenceOf_ByLastReports(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason   string
		heard    []Worker
		want     Reachability
		workers  int
		lastSeen time.Time
		sentence string
	}{
		"None": {
			"no worker has ever reported", nil, Unreachable, 0, time.Time{},
			"no worker of queue q was ever seen, as far as Temporal remembers: start one (slipway worker --party)",
		},
		"Fresh": {
			"one report within the last 20 s", []Worker{seen("a", 3*time.Second)}, Reachable, 1,
			noon.Add(-3 * time.Second),
			"worker a on node-1 polls queue q, last seen 3s ago",
		},
		"Edge": {
			"silent for exactly 20 s is within the limit", []Worker{seen("a", SilenceLimit)}, Reachable, 1,
			noon.Add(-SilenceLimit),
			"worker a on node-1 polls queue q, last seen 20s ago",
		},
		"Silent": {
			"silent for longer: the worker was killed or disconnected",
			[]Worker{seen("a", SilenceLimit+time.Millisecond)}, Unreachable, 0,
			noon.Add(-SilenceLimit - time.Millisecond),
			"the last worker of queue q, a on node-1, was last seen at 2026-11-02T11:59:39Z (20s ago) and has been " +
				"silent for more than 20s: check that it runs and reaches Temporal",
		},
		"Stopped": {
			"a worker that reported its stop counts no longer, at once", []Worker{stopped(seen("a", time.Second))}, Unreachable,
			0, noon.Add(-time.Second),
			"the last worker of queue q, a on node-1, was stopped at 2026-11-02T11:59:59Z (1s ago): start one",
		},
		"Replaced": {
			"an old worker that stopped after the last report of the new one does not hide the new one",
			[]Worker{stopped(seen("old", time.Second)), seen("new", 4*time.Second)}, Reachable, 1,
			noon.Add(-time.Second),
			"worker new on node-1 polls queue q, last seen 1s ago",
		},
		"Several": {
			"one of three is silent", []Worker{seen("b", time.Second), seen("missing", time.Hour),
				seen("a", 2*time.Second)}, Reachable, 2, noon.Add(-time.Second),
			"2 workers poll queue q, last seen 1s ago",
		},
		"FastClock": {
			"a worker with a fast clock is running, and was seen 0 s ago", []Worker{seen("a", -time.Minute)}, Reachable,
			1, noon.Add(time.Minute),
			"worker a on node-1 polls queue q, last seen 0s ago",
		},
		"HostInIdentity": {
			"the host is not repeated if the identity contains it", []Worker{seen("slipway-1@node-1-7", 0)}, Reachable,
			1, noon,
			"worker slipway-1@node-1-7 polls queue q, last seen 0s ago",
		},
		"Nameless": {
			"a worker may have no identity", []Worker{seen("", 0)}, Reachable, 1, noon,
			"worker without a name on node-1 polls queue q, last seen 0s ago",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := PresenceOf("q", test.heard, noon)
			require.Equal(t, test.want, got.Reachable, test.reason)
			require.Equal(t, test.sentence, got.Reason, test.reason)
			require.Len(t, got.Workers, test.workers, test.reason)
			require.Equal(t, test.lastSeen, got.LastSeenAt, test.reason)
		})
	}
}

func TestPresence_SilentAt_IsSilenceLimitAfterLastReport(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason string
		heard  []Worker
		want   time.Time
	}{
		"None":    {"without workers there is no such time", nil, time.Time{}},
		"Silent":  {"a worker that is already silent does not count", []Worker{seen("a", time.Minute)}, time.Time{}},
		"Stopped": {"a stopped worker does not count", []Worker{stopped(seen("a", time.Second))}, time.Time{}},
		"One":     {"20 s after its last report", []Worker{seen("a", 17*time.Second)}, noon.Add(3 * time.Second)},
		"Several": {"the last report of all workers decides",
			[]Worker{seen("a", 17*time.Second), seen("b", 4*time.Second)}, noon.Add(16 * time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, ok := PresenceOf("q", test.heard, noon).SilentAt()
			require.Equal(t, test.want, at, test.reason)
			require.Equal(t, !test.want.IsZero(), ok, test.reason)
		})
	}
}

// A worker that ends waits for new reports of the others.
func TestPresence_SilentSince_ReturnsWorkersWithoutNewReport(t *testing.T) {
	t.Parallel()
	former := PresenceOf("q", []Worker{seen("dead", 7*time.Second), seen("alive", 7*time.Second)}, noon)
	now := PresenceOf("q", []Worker{seen("dead", 7*time.Second), seen("alive", 2*time.Second),
		seen("new", time.Second)}, noon)
	require.Equal(t, []Worker{seen("dead", 7*time.Second)}, now.SilentSince(former))
	require.Empty(t, now.SilentSince(UnknownPresence("Temporal is away")),
		"a worker of which no earlier report is known counts as reporting")
}

func TestPresenceOf_OrdersWorkersByIdentityAndStart(t *testing.T) {
	t.Parallel()
	again := seen("a", 0)
	again.StartedAt = noon
	got := PresenceOf("q", []Worker{again, seen("b", 0), seen("a", 0)}, noon)
	require.Equal(t, []Worker{seen("a", 0), again, seen("b", 0)}, got.Workers, "by identity, then by their start")
}

func TestUnknownPresence_IsNotUnreachable(t *testing.T) {
	t.Parallel()
	require.Equal(t, Presence{Reachable: Unknown, Reason: "Temporal is away"}, UnknownPresence("Temporal is away"),
		"unknown is not unreachable")
}
