package stream

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	hubPatience = 10 * time.Second
	hubTick     = time.Millisecond
)

func TestOneFollowerHoweverManyWatch(t *testing.T) {
	t.Parallel()
	var begun, ended atomic.Int32
	h := NewHub(1)
	follow := func(ctx context.Context, events *broadcast) {
		begun.Add(1)
		defer ended.Add(1)
		events.post("state", "1", []byte("{}"))
		<-ctx.Done()
	}
	var leaves []func()
	for range 50 {
		events, leave := h.watch("a", follow)
		require.NoError(t, firstEvent(t.Context(), events))
		leaves = append(leaves, leave)
	}
	other, leaveOther := h.watch("b", follow)
	require.NoError(t, firstEvent(t.Context(), other))
	require.Equal(t, int32(2), begun.Load(), "one for each task")

	for _, leave := range leaves {
		require.Equal(t, int32(0), ended.Load(), "somebody still watches")
		leave()
		leave() // leaving twice is leaving once
	}
	require.Eventually(t, func() bool { return ended.Load() == 1 }, hubPatience, hubTick, "the last one to leave ends the follower")
	_, leave := h.watch("a", follow)
	require.Eventually(t, func() bool { return begun.Load() == 3 }, hubPatience, hubTick, "who comes later starts a new one")
	leave()
	leaveOther()
	h.Close()
	require.Equal(t, int32(3), ended.Load(), "close returns when nobody follows")
	require.Empty(t, h.followers)
}

func TestASlowReaderGetsTheLatest(t *testing.T) {
	t.Parallel()
	events := newBroadcast()
	for i := range 1000 {
		events.post("state", "", fmt.Appendf(nil, "%d", i)) // nobody reads, and nothing blocks
	}
	now := events.read()
	require.Equal(t, "999", string(now.latest.data), "what lay between is passed over")
	require.Equal(t, int64(1000), now.latest.number)
	select {
	case <-now.changed:
		require.Fail(t, "nothing has changed since")
	default:
	}
	events.end(nil)
	<-now.changed
	events.post("state", "", []byte("late"))
	require.Equal(t, "999", string(events.read().latest.data), "the end is the end")
	require.True(t, events.read().over)
}

func TestNobodyWatchesAfterTheEnd(t *testing.T) {
	t.Parallel()
	h := NewHub(1)
	follow := func(ctx context.Context, _ *broadcast) { <-ctx.Done() }
	early, leave := h.watch("a", follow)
	h.Close()
	require.ErrorIs(t, firstEvent(t.Context(), early), errShutdown, "who waits for a first event is told")
	leave()
	late, leaveLate := h.watch("a", follow)
	require.ErrorIs(t, firstEvent(t.Context(), late), errShutdown)
	leaveLate()
}
