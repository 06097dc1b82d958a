package upgrade

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func TestWhichBuildGetsTheWork(t *testing.T) {
	t.Parallel()
	old := Build{ID: "v1-h4", FirstSeen: noon.Add(-48 * time.Hour), Live: true}
	newer := Build{ID: "v2-h5", FirstSeen: noon, Live: true}
	gone := func(b Build) Build { b.Live = false; return b }
	cases := []struct {
		reason string
		queue  Queue
		want   Decision
	}{
		{"the first worker that ever polls gets the work at once", Queue{Builds: []Build{newer}},
			Decision{Build: "v2-h5", Reason: "no worker of the build without an ID runs"}},
		{"an upgrade takes effect while the old build still runs", Queue{Current: old.ID, Builds: []Build{old, newer}},
			Decision{Build: "v2-h5", Reason: "it is newer than build v1-h4"}},
		{"a worker of the old build that starts beside the new one stands by", Queue{Current: newer.ID, Builds: []Build{newer, old}},
			Decision{Build: "v2-h5", Reason: "it is the newest build that runs"}},
		{"when the new build is gone the old one gets the work back", Queue{Current: newer.ID, Builds: []Build{gone(newer), old}},
			Decision{Build: "v1-h4", Reason: "no worker of build v2-h5 runs", Older: true}},
		{"workers without an ID are older than all others", Queue{Current: Unversioned, Builds: []Build{{Live: true}, old}},
			Decision{Build: "v1-h4", Reason: "it is newer than the build without an ID"}},
		{"they get the work back too", Queue{Current: old.ID, Builds: []Build{{Live: true}, gone(old)}},
			Decision{Build: Unversioned, Reason: "no worker of build v1-h4 runs", Older: true}},
		{"while nobody polls nothing changes", Queue{Current: newer.ID, Builds: []Build{gone(newer), gone(old)}},
			Decision{Build: "v2-h5", Reason: "no worker polls"}},
		{"who manages the choice is not interfered with", Queue{Current: old.ID, Manager: "ops", Builds: []Build{old, newer}},
			Decision{Build: "v1-h4", Reason: "ops manages which build gets the work"}},
	}
	for _, c := range cases {
		require.Equal(t, c.want, c.queue.Decide(), c.reason)
	}
}

// Whatever runs in whatever order: the work goes to a build that runs if there is one, all workers decide alike, and a decision that was carried out stands.
func TestDecisionsAgreeAndStand(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var q Queue
		for i := range rapid.IntRange(1, 5).Draw(t, "builds") {
			q.Builds = append(q.Builds, Build{ID: ID("v"+string(rune('a'+i)), i), Live: rapid.Bool().Draw(t, "live"),
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
			t.Fatalf("%s does not stand: %s", decided, again)
		}
		anybody := false
		for _, b := range q.Builds {
			anybody = anybody || b.Live
			if b.ID == decided && !b.Live && anybody {
				t.Fatalf("%s gets the work and does not run", decided)
			}
		}
	})
}

func TestWhatMayBeRecorded(t *testing.T) {
	t.Parallel()
	const window = 24 * time.Hour
	cases := []struct {
		reason string
		builds []Build
		want   int
	}{
		{"alone, a build records what it can", []Build{{ID: "v2-h6", Live: true}}, 6},
		{"while the old build runs it could get the release", []Build{{ID: "v1-h5", Live: true}, {ID: "v2-h6", Live: true}}, 5},
		{"people may go back to a build that got work an hour ago", []Build{{ID: "v1-h5", LastCurrent: noon.Add(-time.Hour)}}, 5},
		{"nobody goes back to that of two days ago", []Build{{ID: "v1-h5", LastCurrent: noon.Add(-48 * time.Hour)}}, 6},
		{"one that never got work and is gone does not count", []Build{{ID: "v1-h5"}}, 6},
		{"workers without an ID understand what the last of them did", []Build{{ID: Unversioned, LastCurrent: noon.Add(-time.Hour)}}, 4},
		{"a newer build holds nothing back", []Build{{ID: "v3-h9", Live: true}}, 6},
		{"an ID that somebody made up says nothing", []Build{{ID: "canary", Live: true}}, 6},
	}
	for _, c := range cases {
		level, reason := Queue{Builds: c.builds}.Record(6, window, noon)
		require.Equal(t, c.want, level, c.reason)
		require.NotEmpty(t, reason)
	}
}

func TestTheLevelIsPartOfTheID(t *testing.T) {
	t.Parallel()
	level, ok := Level(ID("v1.2.3-4-gabc-dirty", 12))
	require.True(t, ok)
	require.Equal(t, 12, level)
	_, ok = Level("v1.2.3-hotfix")
	require.False(t, ok)
}
