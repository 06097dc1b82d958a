package api

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/workflows"
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
	require.Len(t, keyLabel("k"), 40, "a label has at most 63 characters")
	for _, id := range []string{"", "a/b", "..", "A", "a_b", strings.Repeat("a", 64)} {
		require.False(t, isTaskID(id), "%q is no task's ID", id)
	}
}

func TestListsForSearchAttributesFit(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"111", "222"}, workflows.FitList([]string{"111", "222"}), "what fits is left as it is")
	var many []string
	for range 1000 {
		many = append(many, "service-with-a-name")
	}
	cutList := workflows.FitList(many)
	require.Equal(t, "…", cutList[len(cutList)-1], "a marker says that it was cut")
	encoded, err := json.Marshal(cutList)
	require.NoError(t, err)
	require.Less(t, len(encoded), 2048, "the server takes no more")
	require.Greater(t, len(encoded), 1800, "and no less than fits")
	require.Len(t, many, 1000, "the list itself is left as it is")
}

func TestPositionsSurviveTheirCursor(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 2, 9, 30, 0, 123456000, time.UTC)
	read, err := parsePosition(position{at, "task-shop-1"}.String())
	require.NoError(t, err)
	require.Equal(t, position{at, "task-shop-1"}, read)
	record := func(created time.Time, name string) *v1alpha1.ReleaseRecord {
		r := &v1alpha1.ReleaseRecord{}
		r.Name = name
		r.Spec.CreatedAt.Time = created
		return r
	}
	require.False(t, read.precedes(record(at, "task-shop-1")), "it was on the page before")
	require.True(t, read.precedes(record(at, "task-shop-0")), "the same instant, the next name")
	require.True(t, read.precedes(record(at.Add(-time.Microsecond), "task-z")), "older")
	require.False(t, read.precedes(record(at.Add(time.Microsecond), "task-a")), "newer: it came after the list was begun")
	for _, cursor := range []string{"x", "", "!!", "MQ", "eCB5"} {
		_, err := parsePosition(cursor)
		require.Error(t, err, cursor)
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
