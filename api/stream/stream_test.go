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
	hubTimeout = 10 * time.Second
	hubTick    = time.Millisecond
)

func TestHub_SharesOneFollower_AmongReaders(t *testing.T) {
	t.Parallel()
	var begun, ended atomic.Int32
	h := NewHub(1, nil)
	follow := func(ctx context.Context, events *broadcast) {
		begun.Add(1)
		defer ended.Add(1)
		events.publish("state", "1", []byte("{}"))
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
	require.Equal(t, int32(2), begun.Load(), "one follower for each subject")

	for _, leave := range leaves {
		require.Equal(t, int32(0), ended.Load(), "a reader is still watching")
		leave()
		leave() // a second call has no effect
	}
	require.Eventually(t, func() bool {
		return ended.Load() == 1
	}, hubTimeout, hubTick, "the last reader to leave stops the follower")
	_, leave := h.watch("a", follow)
	require.Eventually(t, func() bool {
		return begun.Load() == 3
	}, hubTimeout, hubTick, "a later reader starts a new follower")
	leave()
	leaveOther()
	h.Close()
	require.Equal(t, int32(3), ended.Load(), "Close returns when all followers have stopped")
	require.Empty(t, h.followers)
}

func TestBroadcast_SlowReaderGetsLatestEvent(t *testing.T) {
	t.Parallel()
	events := newBroadcast()
	for i := range 1000 {
		events.publish("state", "", fmt.Appendf(nil, "%d", i)) // without readers, publishing does not block
	}
	now := events.read()
	require.Equal(t, "999", string(now.latest.data), "events in between are skipped")
	require.Equal(t, int64(1000), now.latest.number)
	select {
	case <-now.changed:
		require.Fail(t, "nothing has changed since")
	default:
	}
	events.end(nil)
	<-now.changed
	events.publish("state", "", []byte("late"))
	require.Equal(t, "999", string(events.read().latest.data), "no event is published after the end")
	require.True(t, events.read().ended)
}

func TestHub_ReturnsShutdownError_AfterClose(t *testing.T) {
	t.Parallel()
	h := NewHub(1, nil)
	follow := func(ctx context.Context, _ *broadcast) { <-ctx.Done() }
	early, leave := h.watch("a", follow)
	h.Close()
	require.ErrorIs(t, firstEvent(t.Context(), early), errShutdown,
		"a reader that waits for its first event gets an error")
	leave()
	late, leaveLate := h.watch("a", follow)
	require.ErrorIs(t, firstEvent(t.Context(), late), errShutdown)
	leaveLate()
}
