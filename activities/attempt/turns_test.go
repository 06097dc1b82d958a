package attempt_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workloadops"
)

// crowded is a job whose cluster takes a second to answer.
type crowded struct {
	now, most *atomic.Int32
	waits     bool
	fails     error
}

// look takes its time.
func (c *crowded) look() {
	n := c.now.Add(1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	time.Sleep(time.Second)
	c.now.Add(-1)
}

// Reconcile implements attempt.Job.
func (c *crowded) Reconcile(context.Context) (attempt.Next, error) {
	c.look()
	if c.waits {
		c.waits = false
		return attempt.Next{Action: attempt.Wait, Within: time.Hour}, nil
	}
	return attempt.Next{Action: attempt.Done}, c.fails
}

// Missing implements attempt.Job.
func (c *crowded) Missing(err error) error { return err }

// Failed implements attempt.Job.
func (c *crowded) Failed(_ context.Context, f *failure.Error) *failure.Error {
	c.look()
	return f
}

// Of hundreds of attempts that look at once a cluster is asked by as many as it has time for. Those that wait for their pods are in nobody's way, and those
// that wait for their turn are neither frozen nor out of time, though their turn comes later than that.
func TestAttemptsLookInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most, refused atomic.Int32
		turns, began := attempt.NewTurns(), time.Now()
		var all sync.WaitGroup
		for i := range 960 {
			all.Go(func() {
				job := &crowded{now: &now, most: &most, waits: i%3 == 0}
				if i%3 == 1 {
					job.fails = failure.New(failure.Refused, "refused")
				}
				options := attempt.Options{ListenFor: 5 * time.Second, FrozenAfter: 10 * time.Second, Turns: turns, Now: time.Now}
				err := attempt.Start(t.Context(), options, attempt.Terms{}).Run(t.Context(), job)
				if job.fails != nil && err != nil {
					refused.Add(1)
				} else if err != nil && i%3 != 0 {
					t.Errorf("%d: %v", i, err)
				}
			})
		}
		all.Wait()
		require.Equal(t, int32(64), most.Load(), "to tidy up after a failure is bounded as well")
		require.Equal(t, int32(320), refused.Load())
		require.Less(t, time.Since(began), time.Minute, "1,600 looks of a second, 64 at once")
	})
}

func TestWhoWaitsForATurnEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := attempt.NewTurns()
		var now, most atomic.Int32
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				job := &crowded{now: &now, most: &most}
				if err := attempt.Start(t.Context(), attempt.Options{ListenFor: time.Minute, Turns: turns, Now: time.Now}, attempt.Terms{}).Run(t.Context(), job); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		job := &crowded{now: &now, most: &most}
		err := attempt.Start(ctx, attempt.Options{ListenFor: time.Minute, Turns: turns, Now: time.Now}, attempt.Terms{}).Run(ctx, job)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		all.Wait()
		require.Equal(t, int32(64), most.Load(), "it has not looked, and its place is nobody's")
	})
}

// over is a whole whose parts are to end at once.
type over struct{ attempt.Details }

// Begins implements attempt.Whole.
func (over) Begins(workloadops.Progress) {}

// Until implements attempt.Whole.
func (over) Until() time.Time { return time.Time{} }

// Moved implements attempt.Whole.
func (over) Moved() {}

// The others of a whole that is over are not waited for until their turns come.
func TestAPartOfWhatIsOverLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		options := attempt.Options{ListenFor: time.Minute, FrozenAfter: time.Minute, Turns: attempt.NewTurns(), Now: time.Now}
		var all sync.WaitGroup
		for range 5 * 64 {
			all.Go(func() {
				_ = attempt.Start(t.Context(), options, attempt.Terms{}).Run(t.Context(), &crowded{now: &now, most: &most})
			})
		}
		synctest.Wait()
		began := time.Now()
		part := attempt.Within(t.Context(), over{heartbeat.Take(t.Context(), workloadops.Progress{})})
		err := attempt.Start(part, options, attempt.Terms{}).Run(part, &crowded{now: &now, most: &most})
		var retried *temporal.ApplicationError
		require.ErrorAs(t, err, &retried)
		require.False(t, retried.NonRetryable())
		require.Less(t, time.Since(began), 3*time.Second, "its turn would come after four")
		all.Wait()
	})
}

// What has been begun is brought to its end before many others begin, and does not keep them from it.
func TestWhoHasBegunComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most, begun atomic.Int32
		options := attempt.Options{ListenFor: time.Minute, FrozenAfter: time.Minute, Turns: attempt.NewTurns(), Now: time.Now}
		began := time.Now()
		run := func(begun bool, over func()) {
			o := options
			o.Begun = begun
			_ = attempt.Start(t.Context(), o, attempt.Terms{}).Run(t.Context(), &crowded{now: &now, most: &most})
			over()
		}
		var all sync.WaitGroup
		for range 5 * 64 {
			all.Go(func() { run(false, func() {}) })
		}
		synctest.Wait()
		for range 63 {
			all.Go(func() {
				run(true, func() { begun.Add(1) })
			})
		}
		time.Sleep(2*time.Second + time.Millisecond)
		require.EqualValues(t, 63, begun.Load(), "of the next turns the first is that of one who begins: it has waited for longer")
		all.Wait()
		require.Less(t, time.Since(began), 7*time.Second, "383 looks of a second, 64 at once")
		require.EqualValues(t, 64, most.Load())

		var endless sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for range 5 * 64 {
			endless.Go(func() {
				for ctx.Err() == nil {
					run(true, func() {})
				}
			})
		}
		synctest.Wait()
		began = time.Now()
		run(false, func() {})
		require.Less(t, time.Since(began), 10*time.Second, "whoever begins has a turn as well")
		cancel()
		endless.Wait()
	})
}

// What attempts do on a clock they do the more seldom the more of them wait for a turn.
func TestACrowdIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		options := attempt.Options{ListenFor: time.Minute, FrozenAfter: time.Minute, Turns: attempt.NewTurns(), Now: time.Now}
		another := func() *attempt.Attempt { return attempt.Start(t.Context(), options, attempt.Terms{}) }
		require.EqualValues(t, 1, another().Crowd())
		var all sync.WaitGroup
		for range 3 * 64 {
			all.Go(func() { _ = another().Run(t.Context(), &crowded{now: &now, most: &most}) })
		}
		time.Sleep(500 * time.Millisecond)
		require.EqualValues(t, 3, another().Crowd(), "two wait for each that has a turn")
		time.Sleep(time.Second)
		require.EqualValues(t, 2, another().Crowd())
		all.Wait()
		require.EqualValues(t, 1, another().Crowd(), "nobody waits any more")
		options.Turns = nil
		require.EqualValues(t, 1, another().Crowd(), "everybody has a turn")
	})
}
