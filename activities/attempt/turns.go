package attempt

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// Turns bound how many attempts look at a cluster and write to it at once. What a cluster has no time for waits here, where it costs nothing: a request that it
// is late with is given up by its sender when it has been worked on already, and is made again.
type Turns struct {
	places *semaphore.Weighted
	// begin lets one attempt at a time that has not begun yet wait for a place. So those that have begun come to their ends before many others begin: otherwise
	// what an attempt has looked at would be old when it comes to write.
	begin *semaphore.Weighted
	// queued are how many wait for theirs.
	queued atomic.Int64
}

// mostTurns is how many have a turn at once.
const mostTurns = 64

// NewTurns are the turns of one cluster's attempts.
func NewTurns() *Turns {
	return &Turns{places: semaphore.NewWeighted(mostTurns), begin: semaphore.NewWeighted(1)}
}

// acquire waits for a turn.
func (t *Turns) acquire(ctx context.Context, begun bool) error {
	if !begun {
		if err := t.begin.Acquire(ctx, 1); err != nil {
			return err
		}
		defer t.begin.Release(1)
	}
	return t.places.Acquire(ctx, 1)
}

// Crowd is how many times as many attempts want a turn as have one: 1 while none waits. What an attempt does on a clock it does that
// much more seldom, so that those that have something to do come to it.
func (t *Attempt) Crowd() time.Duration {
	if t.options.Turns == nil {
		return 1
	}
	return 1 + time.Duration(t.options.Turns.queued.Load())/mostTurns
}

const (
	// signOfLife is how often an attempt that waits for its turn sees that it is alive.
	signOfLife = time.Second
	// longestQueue is how much the wait for a turn makes an attempt longer at most: less than its activity's StartToCloseTimeout allows.
	longestQueue = 20 * time.Second
)

// inTurn does something when it is the attempt's turn. unmade is why it was not done. The wait is not taken for one for the cluster.
func (t *Attempt) inTurn(ctx context.Context, do func()) (unmade error) {
	turns := t.options.Turns
	if err := t.frozen(); err != nil {
		return err
	}
	if turns == nil {
		do()
		return nil
	}
	if !turns.places.TryAcquire(1) {
		from := t.options.Now()
		if err := t.queue(ctx, turns); err != nil {
			return err
		}
		t.waited(t.options.Now().Sub(from))
	}
	defer turns.places.Release(1)
	t.options.Begun = true
	do()
	return nil
}

// queue returns when it is the attempt's turn, or why it ends before.
func (t *Attempt) queue(ctx context.Context, turns *Turns) error {
	queued, leave := context.WithCancel(ctx)
	defer leave()
	turns.queued.Add(1)
	defer turns.queued.Add(-1)
	given := make(chan error, 1)
	go func() { given <- turns.acquire(queued, t.options.Begun) }()
	alive := time.NewTicker(signOfLife)
	defer alive.Stop()
	for {
		var ends error
		select {
		case err := <-given:
			return err
		case <-alive.C:
			if ends = t.frozen(); ends == nil && t.whole != nil && t.whole.Until().IsZero() {
				ends = t.notReady()
			}
		case <-Stopping(ctx):
			ends = t.notReady()
		}
		if ends == nil {
			continue
		}
		leave()
		if <-given == nil {
			turns.places.Release(1)
		}
		return ends
	}
}

// waited has the attempt last longer by what it has waited for its turn.
func (t *Attempt) waited(d time.Duration) {
	if t.whole != nil {
		t.whole.Moved()
		return
	}
	d = min(d, longestQueue-t.queued)
	t.queued += d
	t.until = t.until.Add(d)
}
