package recent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// counter returns how often it was read, after a while.
type counter struct {
	asked atomic.Int64
	takes time.Duration
}

func (c *counter) read(context.Context) (int64, error) {
	n := c.asked.Add(1)
	time.Sleep(c.takes)
	return n, nil
}

func TestGet_SharesOneReadAmongCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a Cache
		c := &counter{takes: 30 * time.Millisecond}
		ask := func() int64 {
			n, err := Get(t.Context(), &a, "list", 100*time.Millisecond, c.read)
			require.NoError(t, err)
			return n
		}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { require.EqualValues(t, 1, ask(), "callers during the read share it") })
		}
		all.Wait()
		time.Sleep(69 * time.Millisecond)
		require.EqualValues(t, 1, ask(), "callers within 99 ms of its start do too")
		time.Sleep(time.Millisecond)
		require.EqualValues(t, 2, ask(), "after 100 ms it is read again")
		c.takes = time.Second
		time.Sleep(time.Second)
		for range 5 {
			all.Go(func() { require.EqualValues(t, 3, ask()) })
			time.Sleep(150 * time.Millisecond)
		}
		all.Wait()
		require.EqualValues(t, 3, c.asked.Load(), "a read that takes longer than its lifetime is not repeated "+
			"concurrently")
	})
}

// Each caller decides how old an answer may be, regardless of the caller that started the read.
func TestGet_RespectsEachCallersMaximumAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a Cache
		var c counter
		expect := func(want int64, fresh, spare time.Duration, reason string) {
			n, err := GetStale(t.Context(), &a, "namespace", fresh, spare, c.read)
			require.NoError(t, err)
			require.Equal(t, want, n, reason)
			synctest.Wait()
		}
		expect(1, time.Minute, 0, "nothing is cached")
		time.Sleep(time.Second)
		expect(2, time.Second, 0, "it is too old for this caller")
		time.Sleep(time.Second)
		expect(2, time.Minute, 0, "it is recent enough for this caller")
		expect(3, 0, 0, "this caller accepts no cached answer")
		time.Sleep(time.Second)
		expect(3, time.Millisecond, time.Minute, "this caller takes the previous answer, and starts another read")
		expect(4, time.Millisecond, time.Minute, "the new answer")
	})
}

// After a change, Forget makes it visible, even if an older read is still in progress.
func TestForget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a Cache
		c := &counter{takes: 30 * time.Millisecond}
		var before sync.WaitGroup
		before.Go(func() {
			n, err := Get(t.Context(), &a, "list", time.Minute, c.read)
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
		})
		time.Sleep(10 * time.Millisecond)
		a.Forget()
		for range 2 {
			n, err := Get(t.Context(), &a, "list", time.Minute, c.read)
			require.NoError(t, err)
			require.EqualValues(t, 2, n, "an answer whose read started before does not come back")
			before.Wait()
		}
	})
}

func TestErrorsAreNotKept(t *testing.T) {
	t.Parallel()
	var a Cache
	away := errors.New("away")
	_, err := Get(t.Context(), &a, "list", time.Hour, func(context.Context) (int, error) { return 0, away })
	require.ErrorIs(t, err, away)
	_, err = Get(t.Context(), &a, "list", time.Hour, func(context.Context) (int, error) { panic("no") })
	require.ErrorContains(t, err, "panic: no", "a panic in a read becomes an error")
	n, err := Get(t.Context(), &a, "list", time.Hour, func(context.Context) (int, error) { return 7, nil })
	require.NoError(t, err)
	require.Equal(t, 7, n)
}

// The first caller may leave: the others get their answer.
func TestGet_ContinuesRead_WhenFirstCallerLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a Cache
		c := &counter{takes: time.Second}
		ctx, leave := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() {
			_, err := Get(ctx, &a, "list", time.Hour, c.read)
			first <- err
		}()
		synctest.Wait()
		leave()
		require.ErrorIs(t, <-first, context.Canceled)
		n, err := Get(t.Context(), &a, "list", time.Hour, c.read)
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
	})
}

func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	var a Cache
	for n := range 5 * maxAnswers {
		got, err := Get(t.Context(), &a, fmt.Sprint(n), time.Hour, func(context.Context) (int, error) { return n, nil })
		require.NoError(t, err)
		require.Equal(t, n, got)
	}
	require.LessOrEqual(t, a.kept.Len(), maxAnswers)
	var nothing *Cache
	nothing.Forget()
	got, err := Get(t.Context(), nothing, "list", time.Hour, func(context.Context) (int, error) { return 1, nil })
	require.NoError(t, err)
	require.Equal(t, 1, got)
}

// A new answer takes the room of the one that was used least recently. All others stay.
func TestOnlyLeastRecentlyUsedAnswerIsEvicted(t *testing.T) {
	t.Parallel()
	var a Cache
	var c counter
	ask := func(question string) {
		_, err := Get(t.Context(), &a, question, time.Hour, c.read)
		require.NoError(t, err)
	}
	for n := range maxAnswers {
		ask(fmt.Sprint(n))
	}
	ask("0")
	require.Equal(t, maxAnswers, a.kept.Len(), "another use of an answer needs no room")
	ask("one more")
	require.Equal(t, maxAnswers, a.kept.Len())
	_, used := a.kept.Get("0")
	_, unused := a.kept.Get("1")
	_, next := a.kept.Get("2")
	require.Equal(t, []bool{true, false, true}, []bool{used, unused, next}, "0 was used again, 1 was not")
}

// With spare time, no caller waits while an answer is read again.
func TestGetStale_DoesNotWait_WithinSpareTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a Cache
		c := &counter{takes: 30 * time.Millisecond}
		var fail atomic.Bool
		ask := func() (int64, time.Duration) {
			began := time.Now()
			n, err := GetStale(t.Context(), &a, "list", 100*time.Millisecond, 50*time.Millisecond,
				func(ctx context.Context) (int64, error) {
					n, err := c.read(ctx)
					if fail.Load() {
						err = errors.New("away")
					}
					return n, err
				})
			require.NoError(t, err)
			return n, time.Since(began)
		}
		expect := func(want int64, waits time.Duration, reason string) {
			n, took := ask()
			require.Equal(t, want, n, reason)
			require.Equal(t, waits, took, reason)
		}
		expect(1, 30*time.Millisecond, "the first caller waits")
		time.Sleep(80 * time.Millisecond)
		expect(1, 0, "it is 110 ms old: returned once more, and read again")
		time.Sleep(10 * time.Millisecond)
		expect(1, 0, "it is being read")
		time.Sleep(25 * time.Millisecond)
		expect(2, 0, "the new answer")
		require.EqualValues(t, 2, c.asked.Load())
		time.Sleep(200 * time.Millisecond)
		expect(3, 30*time.Millisecond, "an expired answer is not returned")
		time.Sleep(80 * time.Millisecond)
		fail.Store(true)
		expect(3, 0, "it is read again, which will fail")
		time.Sleep(35 * time.Millisecond)
		expect(3, 0, "the previous answer is returned until it expires")
		fail.Store(false)
		time.Sleep(30 * time.Millisecond)
		n, _ := ask()
		require.Greater(t, n, int64(3))
	})
}
