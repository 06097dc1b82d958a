package watch

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestQueue_RetriesFailedKey_WithGrowingPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, began, failed := NewQueue[string](100*time.Millisecond, 400*time.Millisecond), time.Now(), &heard{}
		at := &heard{}
		var calls atomic.Int32
		run(t, func(ctx context.Context) {
			q.Run(ctx, Work[string]{Do: func(context.Context, string) (time.Duration, error) {
				if at.add(time.Since(began).String()); calls.Add(1) <= 4 {
					return 0, errors.New("not yet")
				}
				return 0, nil
			}, Failed: func(key string, err error) { failed.add(key, err.Error()) }})
		})
		q.Add("a")
		time.Sleep(time.Hour)
		require.Equal(t, []string{"0s", "100ms", "300ms", "700ms", "1.1s"}, at.taken(),
			"the pause doubles up to the longest; a key that succeeds is not processed again")
		require.Equal(t, []string{"a not yet", "a not yet", "a not yet", "a not yet"}, failed.taken())

		calls.Store(0)
		q.Add("a")
		time.Sleep(150 * time.Millisecond)
		require.Len(t, at.taken(), 2, "after a success the pauses begin with the shortest")
	})
}

func TestQueue_ProcessesKeyAgain_AfterReturnedTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue[int](time.Second, time.Minute)
		var times atomic.Int32
		run(t, func(ctx context.Context) {
			q.Run(ctx, Work[int]{Do: func(context.Context, int) (time.Duration, error) {
				if times.Add(1) == 3 {
					return 0, nil
				}
				return time.Minute, nil
			}})
		})
		q.Add(1)
		time.Sleep(59 * time.Second)
		require.EqualValues(t, 1, times.Load())
		time.Sleep(time.Hour)
		require.EqualValues(t, 3, times.Load())
	})
}

func TestQueue_BoundsWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue[int](time.Second, time.Minute)
		var now, most, called atomic.Int32
		run(t, func(ctx context.Context) {
			q.Run(ctx, Work[int]{Workers: 3, Timeout: time.Minute, Do: func(call context.Context, _ int) (time.Duration,
				error) {
				called.Add(1)
				most.Store(max(most.Load(), now.Add(1)))
				<-call.Done()
				now.Add(-1)
				return 0, nil
			}})
		})
		for key := range 5 {
			q.Add(key)
			q.Add(key)
		}
		time.Sleep(30 * time.Second)
		q.Add(0)
		require.EqualValues(t, 3, called.Load(), "as many as there are workers")
		time.Sleep(time.Hour)
		require.EqualValues(t, 6, called.Load(),
			"a call ends with its timeout; a key that was added twice is processed once, one that was added during its "+
				"call is processed again")
		require.EqualValues(t, 3, most.Load())
	})
}

// A call that is interrupted by the end of its process has not failed.
func TestQueue_ReportsNothing_WhenStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue[int](time.Second, time.Minute)
		var b Background
		b.Begin(func(ctx context.Context) {
			q.Run(ctx, Work[int]{Do: func(call context.Context, _ int) (time.Duration, error) {
				<-call.Done()
				return 0, call.Err()
			}, Failed: func(int, error) { t.Error("it has not failed") }})
		})
		q.Add(1)
		synctest.Wait()
		require.NoError(t, b.Stop(context.Background()))
	})
}
