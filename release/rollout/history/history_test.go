package history_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/history"
)

func TestNext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason   string
		recorded []int64
		next     int64
	}{
		{"the first release replaces revision 1", nil, 2},
		{"numbers stay when older records were pruned", []int64{9, 8}, 10},
		{"a release that was withdrawn leaves a gap", []int64{5, 3}, 6},
	} {
		require.Equal(t, c.next, history.Next(c.recorded), c.reason)
	}
}

// release returns a release from one template to another. Templates are named by their image.
func release(number int64, phase rollout.Phase, from, to string) rollout.Status {
	return rollout.Status{Revision: number, Phase: phase,
		StableTemplateDigest: from, StableRevision: "rev-" + from, StableImages: map[string]string{"app": from},
		TemplateDigest: to, CanaryRevision: "rev-" + to, Images: map[string]string{"app": to}}
}

const healthy, rolledBack, failed, cancelled = rollout.PhaseHealthy, rollout.PhaseRolledBack, rollout.PhaseFailed,
	rollout.PhaseCancelled

func TestChoose(t *testing.T) {
	t.Parallel()
	three := []rollout.Status{release(3, healthy, "v2", "v3"), release(2, healthy, "v1", "v2")}
	undone := append([]rollout.Status{release(4, healthy, "v3", "v2")}, three...)
	bad := append([]rollout.Status{release(4, rolledBack, "v3", "v4")}, three...)
	earlier := []rollout.Status{{Phase: healthy, Revision: 2}}
	byName := []rollout.Status{{Phase: healthy, Revision: 2, StableRevision: "a", CanaryRevision: "b"}}
	for _, c := range []struct {
		reason   string
		releases []rollout.Status
		number   int64
		want     string
		to, back int64
		refused  string
	}{
		{"without a number: what the last release replaced", three, 0, "v2", 2, 1, ""},
		{"the version before the first release is revision 1", three, 1, "v1", 1, 2, ""},
		{"after an undo the next undo goes forward again", undone, 0, "v3", 3, 1, ""},
		{"a version that served twice counts once", undone, 1, "v1", 1, 2, ""},
		{"its older number names the same version, which serves now", undone, 2, "", 0, 0,
			"revision 4 (app=v2) is the version that serves now"},
		{"a release that only numbered the pods is skipped",
			append([]rollout.Status{release(4, healthy, "v3", "v3")}, three...), 0, "v2", 2, 1, ""},
		{"a release that was rolled back is skipped", bad, 0, "v2", 2, 1, ""},
		{"what was rolled back never served alone", bad, 4, "", 0, 0,
			"revision 4 never served alone: its release ended as RolledBack. Choose one of revision 2 (app=v2), " +
				"revision 1 (app=v1)"},
		{"an unknown number: the error lists the choices", three, 7, "", 0, 0,
			"there is no revision 7 in the history, which has revision 2 (app=v2), revision 1 (app=v1)"},
		{"the version that serves is no choice", three, 3, "", 0, 0,
			"revision 3 (app=v3) is the version that serves now"},
		{"a rollback after which nothing ended well", []rollout.Status{release(2, rolledBack, "v1", "v2")}, 0, "", 0, 0,
			"has ended Healthy"},
		{"a rollback does not move the numbers: what was there before is still revision 1",
			[]rollout.Status{release(3, healthy, "v1", "v3"), release(2, failed, "v1", "v2")}, 0, "v1", 1, 1, ""},
		{"the workload was changed without Slipway: that version has no number, and still is what was replaced",
			[]rollout.Status{release(4, healthy, "hand", "v4"), release(3, cancelled, "v2", "v3"),
				release(2, healthy, "v1", "v2")}, 0, "hand", 0, 1, ""},
		{"older records were pruned: the version that the oldest one replaced has the number before it",
			[]rollout.Status{release(60, healthy, "v59", "v60")}, 59, "v59", 59, 1, ""},
		{"an earlier build recorded only names of revisions", byName, 0, "", 1, 1, ""},
		{"an earlier build recorded nothing that identifies the template", earlier, 0, "", 0, 0,
			"an earlier version of Slipway wrote it"},
	} {
		got, err := history.Of(c.releases).Choose(c.number)
		if c.refused != "" {
			require.ErrorContains(t, err, c.refused, c.reason)
			continue
		}
		require.NoError(t, err, c.reason)
		require.Equal(t, c.want, got.Template, c.reason)
		require.Equal(t, c.to, got.Number, c.reason)
		require.Equal(t, int(c.back), got.Back, c.reason)
	}
}

func TestOf_NumbersReplacedVersions(t *testing.T) {
	t.Parallel()
	past := history.Of([]rollout.Status{
		release(6, rollout.PhaseProgressing, "v1", "v4"),
		release(5, healthy, "hand", "v1"),
		release(4, healthy, "v3", "v2"),
		release(3, healthy, "v2", "v3"),
		release(2, healthy, "v1", "v2"),
	})
	require.Equal(t, []int64{5, 0, 3, 2, 1}, past.Replaced,
		"each release names the version that it found; a version set by hand has no number")
	require.Equal(t, int64(5), past.Served[0].Number, "a version that serves again has its newest number")
}

func TestTarget_Within(t *testing.T) {
	t.Parallel()
	past := history.Of([]rollout.Status{release(4, healthy, "v3", "v4"), release(3, healthy, "v2", "v3"),
		release(2, healthy, "v1", "v2")})
	for number, back := range map[int64]int64{3: 1, 2: 2, 1: 3} {
		target, err := past.Choose(number)
		require.NoError(t, err)
		require.True(t, target.Within(back), "revision %d is within the last %d", number, back)
		require.False(t, target.Within(back-1), "revision %d is not within the last %d", number, back-1)
	}
}
