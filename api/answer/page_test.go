package answer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/v1alpha1"
)

func TestPosition_RoundTripsThroughCursor(t *testing.T) {
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
	require.False(t, read.precedes(record(at, "task-shop-1")), "it was on the previous page")
	require.True(t, read.precedes(record(at, "task-shop-0")), "the same instant, the next name")
	require.True(t, read.precedes(record(at.Add(-time.Microsecond), "task-z")), "older")
	require.False(t, read.precedes(record(at.Add(time.Microsecond), "task-a")),
		"newer: it was created after the first page was read")
	for _, cursor := range []string{"x", "", "!!", "MQ", "eCB5"} {
		_, err := parsePosition(cursor)
		require.Error(t, err, cursor)
	}
}
