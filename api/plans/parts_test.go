package plans

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/start"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
)

func TestTaskIDs(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 2, 9, 30, 0, 0, time.UTC)
	for _, c := range []struct{ reason, plan, want string }{
		{"the plan's name is recognised", "shop", `^shop-20261102093000-[a-z2-7]{5}$`},
		{"capital letters are not legal in names of objects", "Shop", `^shop-20261102093000-`},
		{"a long name is cut", strings.Repeat("x", 63), `^x{40}-20261102093000-`},
		{"a cut name does not end in a dot or dash", strings.Repeat("x", 39) + ".y", `^x{39}-20261102093000-`},
	} {
		id := newTaskID(c.plan, at)
		require.Regexp(t, c.want, id, c.reason)
		require.True(t, isTaskID(id), "%s: %s", c.reason, id)
		require.True(t, isTaskID(keyedTaskID(c.plan, "key", "")), c.reason)
		require.LessOrEqual(t, len(keyedTaskID(c.plan, "key", "")), 63, c.reason)
	}
	first, second := newTaskID("shop", at), newTaskID("shop", at)
	require.NotEqual(t, first, second, "two executions in one second are two tasks")
	require.Equal(t, "shop-", keyedTaskID("shop", "k", "")[:5])
	one, same := keyedTaskID("shop", "k", ""), keyedTaskID("shop", "k", "")
	require.Equal(t, one, same, "one key is one task")
	require.NotEqual(t, keyedTaskID("shop", "k", ""), keyedTaskID("shop", "l", ""), "another key is another")
	require.NotEqual(t, keyedTaskID("shop", "k", ""), keyedTaskID("shop", "k", "shop-abc"), "a key that is used again after its time is another")
	require.Len(t, start.KeyLabel("k"), 40, "a label has at most 63 characters")
	for _, id := range []string{"", "a/b", "..", "A", "a_b", strings.Repeat("a", 64)} {
		require.False(t, isTaskID(id), "%q is no task's ID", id)
	}
}

func TestDetailsStaySmall(t *testing.T) {
	t.Parallel()
	x := &execution{plan: "shop", id: "shop-1", record: &v1alpha1.ReleaseRecord{}}
	x.record.Spec.Reason = strings.Repeat("because ", 500)
	x.snapshot.Document.Comment = strings.Repeat("words\n", 500)
	for i := range 1000 {
		x.snapshot.Document.Items = append(x.snapshot.Document.Items, plan.Item{ServiceID: plan.ServiceID(strings.Repeat("s", 63)), Priority: int64(i / 20), Deployment: plan.Restart})
	}
	details := x.details()
	require.Less(t, len(details), 15000, "Temporal takes 20,000 bytes")
	require.Contains(t, details, "and 14 more")
	require.Contains(t, details, "and more waves")
}
