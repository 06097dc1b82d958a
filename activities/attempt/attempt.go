// Package attempt runs one attempt of an activity that changes something in a cluster. An attempt repeats rounds: read
// the cluster, decide, write, wait for changes. It ends when the job is done, when it fails permanently, or when its
// time is up: then it frees its worker slot with failure.NotReady, and the Temporal server schedules the next attempt.
// What an attempt has learned passes to the next one as heartbeat details (workload.Progress).
//
// Jobs only read, decide and write. This package handles every other condition of the cluster, in the same way for all
// jobs:
//
//   - The API server does not answer: the attempt retries every second until the budget is used up
//     (Terms.UnreachableBudgetSeconds).
//   - The worker lacks a permission: it is retried for five seconds, because an API server that has just started has
//     not loaded all RBAC rules.
//   - Another client has changed the object first: the next round decides again.
//   - The API server refuses the write: the activity fails.
package attempt

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"

	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workload"
)

// Terms are the limits that a request sets for its activity.
type Terms struct {
	// Subject names the object of the activity, for the beginning of a sentence: "Deployment shop/order".
	Subject string
	// DeadlineSeconds is how long the job may take; 0: no deadline. SpentSeconds is what earlier activities have used
	// of it. Time in which the cluster is unreachable does not count.
	DeadlineSeconds, SpentSeconds int64
	// UnreachableBudgetSeconds is how long the cluster may be unreachable, over all attempts, before the activity fails
	// with failure.Unreachable. 0: no limit, the activity is retried for ever.
	UnreachableBudgetSeconds int64
	// KnownFailure is the message of a failure that was already reported to the workflow. As long as the failure stays
	// the same, the server retries quietly after KnownFailureRetry, without an event in the history.
	KnownFailure      string
	KnownFailureRetry time.Duration
}

// Options are the same for all attempts of a worker.
type Options struct {
	// ListenFor is how long one attempt waits for the cluster before it frees its worker slot.
	ListenFor time.Duration
	// StalledAfter is the longest time without a sign of life after which an attempt may go on; beyond it the attempt
	// ends itself, because its process may have been suspended while another attempt took over. 0: no check, because
	// every write of the job carries a precondition that another attempt invalidates.
	StalledAfter time.Duration
	// Slots bound how many attempts send requests to the cluster at once; nil: no bound.
	Slots *RequestSlots
	// InProgress is true when an earlier attempt or activity has already started this work: such an attempt gets a
	// request slot before those that only start.
	InProgress bool
	// Recorder sends the heartbeat that must not be lost (Attempt.Record); nil: the Temporal client of the activity's
	// own worker.
	Recorder heartbeat.Recorder
	// Now is the clock.
	Now func() time.Time
}

// Job is the part that differs between activities.
type Job interface {
	// Reconcile is one round: it reads, decides and writes. It is level-based: it never relies on an earlier round.
	Reconcile(ctx context.Context) (Next, error)
	// Missing returns the failure to report when the API server answers that an object does not exist.
	Missing(err error) error
	// Failed is called before the activity fails permanently. It returns the failure to report, or nil when there is
	// something to clean up first: then the rounds continue.
	Failed(ctx context.Context, f *failure.Error) *failure.Error
}

// Action is what follows a round.
type Action int

// The actions.
const (
	// Again starts the next round at once: something was written.
	Again Action = iota
	// Wait waits for a change, then starts the next round.
	Wait
	// Done ends the activity.
	Done
)

// Next is what follows a round.
type Next struct {
	Action Action
	// Reason describes the awaited condition to users.
	Reason string
	// Within is the longest time to wait; 0: until the end of the attempt.
	Within time.Duration
	// Listen subscribes to changes until its context ends; a value on the channel ends the wait. nil: only time ends
	// the wait.
	Listen func(ctx context.Context) (<-chan struct{}, error)
}

// Attempt is one attempt of one activity.
type Attempt struct {
	terms   Terms
	options Options
	details Details
	// parent is the activity that the attempt is a part of; nil for an independent attempt.
	parent Parent
	// until is when an independent attempt frees its worker slot.
	until time.Time
	// queuedFor is how much later than planned that is, because the attempt waited for a request slot.
	queuedFor time.Duration
	// lastAlive is the time of the last sign of life.
	lastAlive time.Time
	// forbiddenSince is when the permission was first found missing, without a success since.
	forbiddenSince time.Time
}

// Start prepares an attempt with the progress of the previous one. It sends no heartbeat before Run.
func Start(ctx context.Context, options Options, terms Terms) *Attempt {
	t := &Attempt{terms: terms, options: options, until: options.Now().Add(options.ListenFor), lastAlive: time.Now()}
	first := workload.Progress{ElapsedSeconds: float64(terms.SpentSeconds),
		LastChangeSeconds: float64(terms.SpentSeconds)}
	if parent, is := ctx.Value(parentKey{}).(Parent); is {
		parent.BeginPart(first)
		t.details, t.parent = parent, parent
		return t
	}
	t.details = heartbeat.Take(ctx, first)
	return t
}

// Run repeats rounds until the job is done or the attempt ends. The activity must return the error without wrapping it.
func (t *Attempt) Run(ctx context.Context, job Job) error {
	stop, well := t.details.Begin(ctx), false
	defer func() { stop(well) }()
	for {
		done, err := t.round(ctx, job)
		if done {
			well = true
			return nil
		}
		if err == nil {
			continue
		}
		if f, ok := errors.AsType[*failure.Error](err); ok && !f.Kind.Retryable() {
			failed := f
			if unmade := t.withSlot(ctx, func() { failed = job.Failed(ctx, f) }); unmade != nil {
				return ApplicationError(unmade)
			}
			if failed == nil {
				continue
			}
			err = t.quietIfKnown(failed)
		}
		return ApplicationError(err)
	}
}

// round is one round and the wait that follows it.
func (t *Attempt) round(ctx context.Context, job Job) (done bool, err error) {
	var next Next
	if unmade := t.withSlot(ctx, func() { next, err = job.Reconcile(ctx) }); unmade != nil {
		return false, unmade
	}
	if err != nil {
		return false, t.handleError(ctx, job, err)
	}
	t.markReached()
	switch next.Action {
	case Done:
		return true, nil
	case Wait:
		return false, t.wait(ctx, job, next)
	case Again:
	}
	return false, nil
}

// Now is the attempt's clock.
func (t *Attempt) Now() time.Time { return t.options.Now() }

// SlotDeadline is when the attempt frees its worker slot.
func (t *Attempt) SlotDeadline() time.Time {
	if t.parent != nil {
		return t.parent.SlotDeadline()
	}
	return t.until
}

// Progressed reports that the awaited condition advanced: then a part of a longer activity keeps the worker slot.
func (t *Attempt) Progressed() {
	if t.parent != nil {
		t.parent.Progressed()
	}
}

// Progress is what the attempt has learned so far; the next attempt continues from it.
func (t *Attempt) Progress() workload.Progress { return t.details.Progress() }

// Note updates the progress.
func (t *Attempt) Note(change func(p *workload.Progress)) { t.details.Note(change) }

// Record makes sure that Temporal has stored the progress, before a write after which the cluster holds no trace of it.
// It fails with heartbeat.ErrSuperseded when this attempt is no longer the current one: then the write must not be
// made.
func (t *Attempt) Record(ctx context.Context) error { return t.details.Record(ctx, t.options.Recorder) }

// Read records a successful read of the job's object: the time since the previous read counts against the deadline.
func (t *Attempt) Read() {
	t.details.Note(func(p *workload.Progress) { p.RecordRead(t.options.Now()) })
}

// Overdue reports whether the deadline has passed.
func (t *Attempt) Overdue() bool { return t.terms.DeadlineSeconds > 0 && t.left() <= 0 }

// left is the time left until the deadline.
func (t *Attempt) left() time.Duration {
	p := t.details.Progress()
	return time.Duration(t.terms.DeadlineSeconds)*time.Second - p.Elapsed()
}

// markReached ends an outage. A read alone does not: a cluster that answers reads but no writes is still failing.
func (t *Attempt) markReached() {
	t.lastAlive = time.Now()
	t.forbiddenSince = time.Time{}
	t.details.Note(func(p *workload.Progress) { p.RecordReachable() })
}

const (
	// retryShortest and retryLongest limit the pause between two attempts, which is a twentieth (retryShare) of the
	// time used.
	retryShortest, retryLongest, retryShare = 2 * time.Second, 15 * time.Second, 20
	// pastDeadline is how long after the deadline the attempt reads, so that the read counts as past it.
	pastDeadline = 10 * time.Millisecond
)

// wait waits until something changes, and ends the attempt when its time is up.
func (t *Attempt) wait(ctx context.Context, job Job, next Next) error {
	if next.Reason != "" {
		t.Note(func(p *workload.Progress) { p.Message = next.Reason })
	}
	now := t.options.Now()
	if !now.Before(t.SlotDeadline()) {
		return t.notReady()
	}
	var wake <-chan struct{}
	if next.Listen != nil {
		listening, stop := context.WithCancel(ctx)
		defer stop()
		var err error
		if wake, err = next.Listen(listening); err != nil {
			return t.handleError(ctx, job, err)
		}
	}
	within := t.SlotDeadline().Sub(now)
	if next.Within > 0 {
		within = min(within, next.Within)
	}
	if t.terms.DeadlineSeconds > 0 {
		within = min(within, max(t.left(), 0)+pastDeadline)
	}
	return t.sleep(ctx, within, wake)
}

// sleep waits for d or until wake gives a value. It ends the attempt when the worker stops.
func (t *Attempt) sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-wake:
		return nil
	case <-timer.C:
		return nil
	case <-Stopping(ctx):
		return t.notReady()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stopping returns a channel that is closed when the worker is asked to stop; outside of an activity it is nil, which
// never fires.
func Stopping(ctx context.Context) <-chan struct{} {
	if !activity.IsActivity(ctx) {
		return nil
	}
	return activity.GetWorkerStopChannel(ctx)
}

// notReady ends the attempt so that the server retries it. The pause grows with the time used or the length of the
// outage, and does not exceed the time left until the deadline.
func (t *Attempt) notReady() error {
	p := t.details.Progress()
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

// checkStalled ends an attempt that stalled for too long; if it is still current, Temporal retries it.
func (t *Attempt) checkStalled() error {
	if t.options.StalledAfter > 0 && time.Since(t.lastAlive) > t.options.StalledAfter {
		return StalledError()
	}
	t.lastAlive = time.Now()
	return nil
}

// StalledError is the error of an attempt that stalled for longer than Options.StalledAfter.
func StalledError() error {
	return &failure.Error{Kind: failure.NotReady, RetryAfter: retryShortest,
		Message: "the attempt stalled for longer than its heartbeat timeout and ended itself"}
}

// maxCacheAge covers attempts that start together: hundreds of releases in one namespace within a second.
const maxCacheAge = time.Second

// CacheAge is the maximum age of a cached read (recent.Get) of an object that many activities read before they start:
// at most 1 s, and never older than the activity's schedule time, because another client may have changed the object
// just before that. A read that is still in flight counts. Outside of an activity it is 0: nothing is cached.
func CacheAge(ctx context.Context) time.Duration {
	if !activity.IsActivity(ctx) {
		return 0
	}
	return min(maxCacheAge, time.Since(activity.GetInfo(ctx).ScheduledTime))
}
