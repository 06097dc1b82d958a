package attempt_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/release/failure"
)

// crowded is a job whose cluster takes a second to answer.
type crowded struct {
	now, most *atomic.Int32
	waits     bool
}

// Reconcile implements attempt.Job.
func (c *crowded) Reconcile(context.Context) (attempt.Next, error) {
	n := c.now.Add(1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	time.Sleep(time.Second)
	c.now.Add(-1)
	if c.waits {
		c.waits = false
		return attempt.Next{Action: attempt.Wait, Within: time.Hour}, nil
	}
	return attempt.Next{Action: attempt.Done}, nil
}

// Missing implements attempt.Job.
func (c *crowded) Missing(err error) error { return err }

// Failed implements attempt.Job.
func (c *crowded) Failed(_ context.Context, f *failure.Error) *failure.Error { return f }

// Of hundreds of attempts that look at once a cluster is asked by as many as it has time for, and those that wait for their pods are in nobody's way.
func TestAttemptsLookInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		var all sync.WaitGroup
		began := time.Now()
		for i := range 640 {
			all.Go(func() {
				job := &crowded{now: &now, most: &most, waits: i%2 == 0}
				err := attempt.Start(t.Context(), attempt.Options{ListenFor: 2 * time.Minute, Now: time.Now}, attempt.Terms{}).Run(t.Context(), job)
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.Equal(t, int32(64), most.Load())
		require.Less(t, time.Since(began), 2*time.Minute+20*time.Second, "960 rounds of a second, 64 at once, beside two minutes of waiting")
	})
}
