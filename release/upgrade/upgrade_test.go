package upgrade

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func TestQueue_Decide_PicksNewestLiveBuild(t *testing.T) {
	t.Parallel()
	old := Build{ID: "v1", FirstSeen: noon.Add(-48 * time.Hour), Live: true}
	newer := Build{ID: "v2", FirstSeen: noon, Live: true}
	missing := func(b Build) Build { b.Live = false; return b }
	cases := []struct {
		reason string
		queue  Queue
		want   Decision
	}{
		{"the first worker that ever polls gets the work at once", Queue{Builds: []Build{newer}},
			Decision{Build: "v2", Reason: "no worker of the build without an ID runs"}},
		{"an upgrade takes effect while the old build still runs", Queue{Current: old.ID, Builds: []Build{old, newer}},
			Decision{Build: "v2", Reason: "it is newer than build v1"}},
		{"a worker of the old build that starts next to the new one gets no work",
			Queue{Current: newer.ID, Builds: []Build{newer, old}},
			Decision{Build: "v2", Reason: "it is the newest build that runs"}},
		{"when the last worker of the new build has ended, the old one gets the work back",
			Queue{Current: newer.ID, Builds: []Build{missing(newer), old}},
			Decision{Build: "v1", Reason: "no worker of build v2 runs", Older: true}},
		{"workers without an ID are older than all others",
			Queue{Current: Unversioned, Builds: []Build{{Live: true}, old}},
			Decision{Build: "v1", Reason: "it is newer than the build without an ID"}},
		{"they also get the work back", Queue{Current: old.ID, Builds: []Build{{Live: true}, missing(old)}},
			Decision{Build: Unversioned, Reason: "no worker of build v1 runs", Older: true}},
		{"without pollers nothing changes", Queue{Current: newer.ID, Builds: []Build{missing(newer), missing(old)}},
			Decision{Build: "v2", Reason: "no worker polls"}},
		{"a manual choice is respected", Queue{Current: old.ID, Manager: "ops", Builds: []Build{old, newer}},
			Decision{Build: "v1", Reason: "ops manages which build gets the work"}},
	}
	for _, c := range cases {
		require.Equal(t, c.want, c.queue.Decide(), c.reason)
	}
}

// For any builds, the work goes to a live build if there is one, all workers decide alike, and a decision that was
// carried out is stable.
func TestQueue_Decide_IsDeterministicAndStable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var q Queue
		for i := range rapid.IntRange(1, 5).Draw(t, "builds") {
			q.Builds = append(q.Builds, Build{ID: "v" + string(rune('a'+i)), Live: rapid.Bool().Draw(t, "live"),
				FirstSeen: noon.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "seen")) * time.Hour)})
		}
		q.Current = rapid.SampledFrom(q.Builds).Draw(t, "current").ID
		decided := q.Decide().Build
		shuffled := Queue{Current: q.Current, Builds: rapid.Permutation(q.Builds).Draw(t, "order")}
		if again := shuffled.Decide().Build; again != decided {
			t.Fatalf("%s and %s", decided, again)
		}
		q.Current = decided
		if again := q.Decide().Build; again != decided {
			t.Fatalf("%s is not stable: %s", decided, again)
		}
		anyLive := false
		for _, b := range q.Builds {
			anyLive = anyLive || b.Live
			if b.ID == decided && !b.Live && anyLive {
				t.Fatalf("%s gets the work and is not live", decided)
			}
		}
	})
}
