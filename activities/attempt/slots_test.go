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
	"slipway.io/slipway/release/workload"
)

// slowJob is a job whose cluster takes a second to answer.
type slowJob struct {
	now, most *atomic.Int32
	waits     bool
	fails     error
}

// look is a request that takes one second.
func (c *slowJob) look() {
	n := c.now.Add(1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	time.Sleep(time.Second)
	c.now.Add(-1)
}

// Reconcile implements attempt.Job.
func (c *slowJob) Reconcile(context.Context) (attempt.Next, error) {
	c.look()
	if c.waits {
		c.waits = false
		return attempt.Next{Action: attempt.Wait, Within: time.Hour}, nil
	}
	return attempt.Next{Action: attempt.Done}, c.fails
}

// Missing implements attempt.Job.
func (c *slowJob) Missing(err error) error { return err }

// Failed implements attempt.Job.
func (c *slowJob) Failed(_ context.Context, f *failure.Error) *failure.Error {
	c.look()
	return f
}

// With hundreds of attempts at once, only as many as there are slots send requests. Attempts that wait for pods hold no
// slot, and those that wait for a slot neither count as stalled nor run out of time, though they get it later than
// that.
func TestRequestSlots_BoundConcurrentRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most, refused atomic.Int32
		turns, began := attempt.NewRequestSlots(), time.Now()
		var all sync.WaitGroup
		for i := range 960 {
			all.Go(func() {
				job := &slowJob{now: &now, most: &most, waits: i%3 == 0}
				if i%3 == 1 {
					job.fails = failure.New(failure.Refused, "refused")
				}
				options := attempt.Options{ListenFor: 5 * time.Second, StalledAfter: 10 * time.Second, Slots: turns,
					Now: time.Now}
				err := attempt.Start(t.Context(), options, attempt.Terms{}).Run(t.Context(), job)
				if job.fails != nil && err != nil {
					refused.Add(1)
				} else if err != nil && i%3 != 0 {
					t.Errorf("%d: %v", i, err)
				}
			})
		}
		all.Wait()
		require.Equal(t, int32(64), most.Load(), "cleaning up after a failure is bounded as well")
		require.Equal(t, int32(320), refused.Load())
		require.Less(t, time.Since(began), time.Minute, "1,600 requests of a second, 64 at once")
	})
}

func TestWaitForRequestSlot_EndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := attempt.NewRequestSlots()
		var now, most atomic.Int32
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				job := &slowJob{now: &now, most: &most}
				if err := attempt.Start(t.Context(),
					attempt.Options{ListenFor: time.Minute, Slots: turns, Now: time.Now},
					attempt.Terms{}).Run(t.Context(), job); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		job := &slowJob{now: &now, most: &most}
		err := attempt.Start(ctx, attempt.Options{ListenFor: time.Minute, Slots: turns, Now: time.Now},
			attempt.Terms{}).Run(ctx, job)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		all.Wait()
		require.Equal(t, int32(64), most.Load(), "it sent no request and holds no slot")
	})
}

// endedParent is a parent whose parts are to end at once.
type endedParent struct{ attempt.Details }

// BeginPart implements attempt.Parent.
func (endedParent) BeginPart(workload.Progress) {}

// SlotDeadline implements attempt.Parent.
func (endedParent) SlotDeadline() time.Time { return time.Time{} }

// Progressed implements attempt.Parent.
func (endedParent) Progressed() {}

// A part whose parent is to end does not wait until it gets a slot.
func TestWaitForRequestSlot_EndsWhenParentEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		options := attempt.Options{ListenFor: time.Minute, StalledAfter: time.Minute, Slots: attempt.NewRequestSlots(),
			Now: time.Now}
		var all sync.WaitGroup
		for range 5 * 64 {
			all.Go(func() {
				_ = attempt.Start(t.Context(), options, attempt.Terms{}).Run(t.Context(),
					&slowJob{now: &now, most: &most})
			})
		}
		synctest.Wait()
		began := time.Now()
		part := attempt.WithParent(t.Context(), endedParent{heartbeat.Take(t.Context(), workload.Progress{})})
		err := attempt.Start(part, options, attempt.Terms{}).Run(part, &slowJob{now: &now, most: &most})
		var retried *temporal.ApplicationError
		require.ErrorAs(t, err, &retried)
		require.False(t, retried.NonRetryable())
		require.Less(t, time.Since(began), 3*time.Second, "it would get a slot after four")
		all.Wait()
	})
}

// Work in progress finishes before much new work starts, but does not starve new work.
func TestRequestSlots_PreferWorkInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most, begun atomic.Int32
		options := attempt.Options{ListenFor: time.Minute, StalledAfter: time.Minute, Slots: attempt.NewRequestSlots(),
			Now: time.Now}
		began := time.Now()
		run := func(begun bool, over func()) {
			o := options
			o.InProgress = begun
			_ = attempt.Start(t.Context(), o, attempt.Terms{}).Run(t.Context(), &slowJob{now: &now, most: &most})
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
		require.EqualValues(t, 63, begun.Load(), "the first free slot goes to a new attempt, which has waited longer")
		all.Wait()
		require.Less(t, time.Since(began), 7*time.Second, "383 requests of a second, 64 at once")
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
		require.Less(t, time.Since(began), 10*time.Second, "a new attempt gets a slot as well")
		cancel()
		endless.Wait()
	})
}

// The more attempts wait for a slot, the longer are the polling intervals.
func TestLoadFactor_CountsQueuedAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		options := attempt.Options{ListenFor: time.Minute, StalledAfter: time.Minute, Slots: attempt.NewRequestSlots(),
			Now: time.Now}
		another := func() *attempt.Attempt { return attempt.Start(t.Context(), options, attempt.Terms{}) }
		require.EqualValues(t, 1, another().LoadFactor())
		var all sync.WaitGroup
		for range 3 * 64 {
			all.Go(func() { _ = another().Run(t.Context(), &slowJob{now: &now, most: &most}) })
		}
		time.Sleep(500 * time.Millisecond)
		require.EqualValues(t, 3, another().LoadFactor(), "two wait for each slot")
		time.Sleep(time.Second)
		require.EqualValues(t, 2, another().LoadFactor())
		all.Wait()
		require.EqualValues(t, 1, another().LoadFactor(), "no attempt waits")
		options.Slots = nil
		require.EqualValues(t, 1, another().LoadFactor(), "without slots no attempt waits")
	})
}
