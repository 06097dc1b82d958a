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

// counter answers with how often it was asked, after a while.
type counter struct {
	asked atomic.Int64
	takes time.Duration
}

func (c *counter) read(context.Context) (int64, error) {
	n := c.asked.Add(1)
	time.Sleep(c.takes)
	return n, nil
}

func TestOneAnswerDoesForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a Answers
		c := &counter{takes: 30 * time.Millisecond}
		ask := func() int64 {
			n, err := Get(t.Context(), &a, "list", 100*time.Millisecond, c.read)
			require.NoError(t, err)
			return n
		}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { require.EqualValues(t, 1, ask(), "who asks while it is read gets that") })
		}
		all.Wait()
		time.Sleep(69 * time.Millisecond)
		require.EqualValues(t, 1, ask(), "who asks 99 ms after it was begun does, too")
		time.Sleep(time.Millisecond)
		require.EqualValues(t, 2, ask(), "after 100 ms it is read anew")
		c.takes = time.Second
		time.Sleep(time.Second)
		for range 5 {
			all.Go(func() { require.EqualValues(t, 3, ask()) })
			time.Sleep(150 * time.Millisecond)
		}
		all.Wait()
		require.EqualValues(t, 3, c.asked.Load(), "what takes longer than an answer is kept is read once at a time")
	})
}

// How old an answer may be is up to who asks for it, whatever whoever had it read would have taken.
func TestWhoAsksSaysHowOldAnAnswerMayBe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a Answers
		var c counter
		expect := func(want int64, fresh, spare time.Duration, reason string) {
			n, err := GetLately(t.Context(), &a, "namespace", fresh, spare, c.read)
			require.NoError(t, err)
			require.Equal(t, want, n, reason)
			synctest.Wait()
		}
		expect(1, time.Minute, 0, "nothing is known")
		time.Sleep(time.Second)
		expect(2, time.Second, 0, "it is as old as it may not be for this one")
		time.Sleep(time.Second)
		expect(2, time.Minute, 0, "it is young enough for this one")
		expect(3, 0, 0, "this one relies on nothing that was read before")
		time.Sleep(time.Second)
		expect(3, time.Millisecond, time.Minute, "this one takes the one before, and has it read anew")
		expect(4, time.Millisecond, time.Minute, "which it was")
	})
}

// Whoever has changed something sees the change: also if the answer of before is still being read.
func TestForget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a Answers
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
			require.EqualValues(t, 2, n, "the answer that was begun before doesn't come back")
			before.Wait()
		}
	})
}

func TestErrorsAreNotKept(t *testing.T) {
	t.Parallel()
	var a Answers
	away := errors.New("away")
	_, err := Get(t.Context(), &a, "list", time.Hour, func(context.Context) (int, error) { return 0, away })
	require.ErrorIs(t, err, away)
	_, err = Get(t.Context(), &a, "list", time.Hour, func(context.Context) (int, error) { panic("no") })
	require.ErrorContains(t, err, "panic: no", "a reader that panics takes nobody with it")
	n, err := Get(t.Context(), &a, "list", time.Hour, func(context.Context) (int, error) { return 7, nil })
	require.NoError(t, err)
	require.Equal(t, 7, n)
}

// Whoever asked first may go away: the others get their answer.
func TestTheFirstGoesAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a Answers
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
	var a Answers
	for n := range 5 * most {
		got, err := Get(t.Context(), &a, fmt.Sprint(n), time.Hour, func(context.Context) (int, error) { return n, nil })
		require.NoError(t, err)
		require.Equal(t, n, got)
	}
	require.LessOrEqual(t, len(a.kept), most)
	var nothing *Answers
	nothing.Forget()
	got, err := Get(t.Context(), nothing, "list", time.Hour, func(context.Context) (int, error) { return 1, nil })
	require.NoError(t, err)
	require.Equal(t, 1, got)
}

// Where an answer may be given a little longer, nobody waits while it is read anew.
func TestNobodyWaitsWhileAnAnswerIsReadAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a Answers
		c := &counter{takes: 30 * time.Millisecond}
		var fail atomic.Bool
		ask := func() (int64, time.Duration) {
			began := time.Now()
			n, err := GetLately(t.Context(), &a, "list", 100*time.Millisecond, 50*time.Millisecond, func(ctx context.Context) (int64, error) {
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
		expect(1, 30*time.Millisecond, "the first one waits")
		time.Sleep(80 * time.Millisecond)
		expect(1, 0, "it is 110 ms old: given once more, and read anew")
		time.Sleep(10 * time.Millisecond)
		expect(1, 0, "it is being read")
		time.Sleep(25 * time.Millisecond)
		expect(2, 0, "it was read")
		require.EqualValues(t, 2, c.asked.Load())
		time.Sleep(200 * time.Millisecond)
		expect(3, 30*time.Millisecond, "what is too old is not given any more")
		time.Sleep(80 * time.Millisecond)
		fail.Store(true)
		expect(3, 0, "it is read anew, which will fail")
		time.Sleep(35 * time.Millisecond)
		expect(3, 0, "what was known is given as long as it may be")
		fail.Store(false)
		time.Sleep(30 * time.Millisecond)
		n, _ := ask()
		require.Greater(t, n, int64(3))
	})
}
