package watch

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// After an outage of the API server, changes are seen at most a second after its return, however long it was away.
func TestWatch_ReconnectsWithinASecond_AfterOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := cluster(widget("shop", "a", nil))
		var down atomic.Bool
		down.Store(true)
		var reports atomic.Int32
		client.PrependReactor("list", "widgets", func(clienttesting.Action) (bool, runtime.Object, error) {
			if down.Load() {
				return true, nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
			}
			return false, nil, nil
		})
		w := New(Untyped(client, widgets), keep, Options{Failed: func(string, error) { reports.Add(1) }})
		run(t, w.Run)
		time.Sleep(10 * time.Minute)
		require.False(t, w.Synced())
		require.InDelta(t, 20, reports.Load(), 2, "every 30 seconds")
		down.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, w.Synced())
	})
}

func TestReconnect_ReturnsOtherErrors_AndWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		again := reconnection{failed: func(context.Context, error) {}}
		_, err := reconnect(t.Context(), again, func() (int, error) { return 0, errors.New("forbidden") })
		require.EqualError(t, err, "forbidden")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = reconnect(ctx, again, func() (int, error) { return 0, syscall.ECONNREFUSED })
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	})
}
