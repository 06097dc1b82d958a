package attempt

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workloadops"
)

const (
	// retryShortest and retryLongest limit the pause between two attempts: a twentieth of the time that is used.
	retryShortest, retryLongest, retryShare = 2 * time.Second, 15 * time.Second, 20
	// pastDeadline is how long after the deadline an attempt looks, so that the read counts as past it.
	pastDeadline = 10 * time.Millisecond
)

// wait listens until something changes, and ends the attempt when its time is over.
func (t *Attempt) wait(ctx context.Context, job Job, next Next) error {
	if next.Reason != "" {
		t.Note(func(p *workloadops.Progress) { p.Message = next.Reason })
	}
	now := t.options.Now()
	if !now.Before(t.until) {
		return t.notReady()
	}
	var wake <-chan struct{}
	if next.Listen != nil {
		listening, stop := context.WithCancel(ctx)
		defer stop()
		var err error
		if wake, err = next.Listen(listening); err != nil {
			return t.weigh(ctx, job, err)
		}
	}
	within := t.until.Sub(now)
	if next.Within > 0 {
		within = min(within, next.Within)
	}
	if t.terms.DeadlineSeconds > 0 {
		within = min(within, max(t.left(), 0)+pastDeadline)
	}
	return t.sleep(ctx, within, wake)
}

// sleep waits a while, less when it is woken; it ends the attempt when the worker stops.
func (t *Attempt) sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-wake:
		return nil
	case <-timer.C:
		return nil
	case <-stopping(ctx):
		return t.notReady()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stopping is closed when the worker is asked to stop; it never is outside of a worker.
func stopping(ctx context.Context) <-chan struct{} {
	if !activity.IsActivity(ctx) {
		return nil
	}
	return activity.GetWorkerStopChannel(ctx)
}

// notReady gives the attempt's place back, to be tried again. The pause grows with the time that is used or that the cluster has been out
// of reach, and does not reach past the deadline.
func (t *Attempt) notReady() error {
	p := t.details.Now()
	used := p.Elapsed()
	if p.UnreachableSince != nil {
		used = max(used, t.options.Now().Sub(*p.UnreachableSince))
	}
	after := min(max(used/retryShare, retryShortest), retryLongest)
	if t.terms.DeadlineSeconds > 0 {
		after = min(after, max(t.left(), time.Second))
	}
	return &failure.Error{Kind: failure.NotReady, Message: p.Message, RetryAfter: after}
}

// frozen ends an attempt that was held up; one that is wanted still is made again.
func (t *Attempt) frozen() error {
	if t.options.FrozenAfter > 0 && time.Since(t.alive) > t.options.FrozenAfter {
		return Frozen()
	}
	t.alive = time.Now()
	return nil
}

// Frozen is how an attempt ends that was held up for longer than Options.FrozenAfter.
func Frozen() error {
	return &failure.Error{Kind: failure.NotReady, RetryAfter: retryShortest,
		Message: "the attempt was held up for longer than its heartbeat timeout, and has ended itself"}
}
