package plans

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/start"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
)

func TestIsTaskID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"shop-20261102093000-abcde", "a", "a.b-c", strings.Repeat("a", 63)} {
		require.True(t, plan.IsTaskID(id), "%q is a legal task ID", id)
	}
	for _, id := range []string{"", "a/b", "..", "A", "a_b", strings.Repeat("a", 64)} {
		require.False(t, plan.IsTaskID(id), "%q is not a task ID", id)
	}
}

func TestTaskDetails_FitTemporalLimit_WhenPlanIsLarge(t *testing.T) {
	t.Parallel()
	x := &taskStart{plan: "shop", Start: &start.Start{ID: "shop-1", Written: &v1alpha1.ReleaseRecord{}}}
	x.Written.Spec.Reason = strings.Repeat("because ", 500)
	x.snapshot.Document.Comment = strings.Repeat("words\n", 500)
	for i := range 1000 {
		x.snapshot.Document.Items = append(x.snapshot.Document.Items,
			plan.Item{ServiceID: plan.ServiceID(strings.Repeat("s", 63)), Priority: int64(i / 20),
				Deployment: plan.Restart})
	}
	details := x.details()
	require.Less(t, len(details), 15000, "Temporal's limit is 20,000 bytes")
	require.Contains(t, details, "and 14 more")
	require.Contains(t, details, "and more waves")
}
