// Package attempt runs one attempt at an activity that brings something about in a cluster. An attempt repeats rounds: look at the cluster,
// decide, write what is decided, listen for changes. It ends when the job is done, when it fails for good, or when its time is over: then
// it gives its place back to the worker with failure.NotReady, and the server starts the next attempt. What an attempt knows travels to the
// next one as heartbeat details (workloadops.Progress).
//
// Jobs only look, decide and write. Everything that a cluster may do meanwhile is treated here, the same way for all of them:
//
//   - It does not answer: the attempt asks again every second, until the budget for that is used up (Terms.UnreachableBudgetSeconds).
//   - It lacks a permission for us: asked again for five seconds, since an API server that has just started does not know all rules yet.
//   - Somebody else was faster: the next round decides anew.
//   - It refuses the write: the activity fails.
package attempt

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"

	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workloadops"
)

// Terms are what a request grants its activity.
type Terms struct {
	// Subject names what the activity is about at the beginning of sentences: "Deployment shop/order".
	Subject string
	// DeadlineSeconds is how long the job may take, 0: as long as it takes. SpentSeconds is what earlier activities have used of it. Time
	// out of reach does not count.
	DeadlineSeconds, SpentSeconds int64
	// UnreachableBudgetSeconds is how long the cluster may be out of reach, over all attempts, before the activity fails with
	// failure.Unreachable. 0: there is no limit, the activity is tried for ever.
	UnreachableBudgetSeconds int64
	// KnownFailure is the message of a failure that the workflow knows already and waits out. As long as it stays the same the server tries
	// again after KnownFailureRetry, and the history gets no event.
	KnownFailure      string
	KnownFailureRetry time.Duration
}

// Options are the same for all attempts of a worker.
type Options struct {
	// ListenFor is how long one attempt waits for the cluster before it gives its place back.
	ListenFor time.Duration
	// FrozenAfter is after how long without a sign of life an attempt ends itself, as its worker's process may have been stopped in between
	// and another attempt has gone on. 0: it is not looked at, since every write of the job carries a precondition that another attempt
	// breaks.
	FrozenAfter time.Duration
	// Turns bound how many attempts look and write at once; nil: nothing does.
	Turns *Turns
	// Begun says that it goes on with what an attempt of the same activity has begun: it comes before others that begin.
	Begun bool
	// Recorder takes the heartbeat that must not be lost (Attempt.Record); nil: the Temporal client of the activity's own worker.
	Recorder heartbeat.Recorder
	// Now is the clock.
	Now func() time.Time
}

// Job is an activity's own part.
type Job interface {
	// Reconcile is one round: it looks, decides and writes. It is level-based: it never relies on an earlier round.
	Reconcile(ctx context.Context) (Next, error)
	// Missing is the failure when the API server answers that an object is not there.
	Missing(err error) error
	// Failed is asked before the activity fails for good. It returns the failure to answer, or nil when there is something to tidy up
	// first: then rounds go on.
	Failed(ctx context.Context, f *failure.Error) *failure.Error
}

// Action is what follows a round.
type Action int

// The actions.
const (
	// Again looks again at once: something was written.
	Again Action = iota
	// Wait listens, then looks again.
	Wait
	// Done ends the activity.
	Done
)

// Next is what follows a round.
type Next struct {
	Action Action
	// Reason is what is waited for, in words for people.
	Reason string
	// Within is how long to wait at most; 0: until the attempt's end.
	Within time.Duration
	// Listen begins to listen for changes; the wait ends when the channel gives a value. It stops with its context. nil: only time ends the
	// wait.
	Listen func(ctx context.Context) (<-chan struct{}, error)
}

// Attempt is one attempt at one activity.
type Attempt struct {
	terms   Terms
	options Options
	details Details
	// whole is what the attempt is a part of; nil for one of its own.
	whole Whole
	// until is when an attempt of its own gives its place back.
	until time.Time
	// queued is by how much it does so later since it waited for its turn.
	queued time.Duration
	// alive is when the attempt last gave a sign of life.
	alive time.Time
	// forbiddenSince is when a permission was first found lacking, in a row.
	forbiddenSince time.Time
}

// Start begins an attempt with what the one before has left; nobody is told of it before Run.
func Start(ctx context.Context, options Options, terms Terms) *Attempt {
	t := &Attempt{terms: terms, options: options, until: options.Now().Add(options.ListenFor), alive: time.Now()}
	first := workloadops.Progress{ElapsedSeconds: float64(terms.SpentSeconds), MovedSeconds: float64(terms.SpentSeconds)}
	if whole, is := ctx.Value(wholeKey{}).(Whole); is {
		whole.Begins(first)
		t.details, t.whole = whole, whole
		return t
	}
	t.details = heartbeat.Take(ctx, first)
	return t
}

// Run repeats rounds until the job is done or the attempt ends. The error is to be returned from the activity as it is.
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
		var f *failure.Error
		if errors.As(err, &f) && !f.Kind.Retryable() {
			failed := f
			if unmade := t.inTurn(ctx, func() { failed = job.Failed(ctx, f) }); unmade != nil {
				return ApplicationError(unmade)
			}
			if failed == nil {
				continue
			}
			err = t.unlessKnown(failed)
		}
		return ApplicationError(err)
	}
}

// round is one round and the wait that follows it.
func (t *Attempt) round(ctx context.Context, job Job) (done bool, err error) {
	var next Next
	if unmade := t.inTurn(ctx, func() { next, err = job.Reconcile(ctx) }); unmade != nil {
		return false, unmade
	}
	if err != nil {
		return false, t.weigh(ctx, job, err)
	}
	t.reached()
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

// Until is when the attempt gives its place back.
func (t *Attempt) Until() time.Time {
	if t.whole != nil {
		return t.whole.Until()
	}
	return t.until
}

// Moved says that what is waited for comes on: a part of a longer activity keeps its place as long as it does.
func (t *Attempt) Moved() {
	if t.whole != nil {
		t.whole.Moved()
	}
}

// Progress is what the attempt knows, and leaves to the next one.
func (t *Attempt) Progress() workloadops.Progress { return t.details.Now() }

// Note changes what the attempt knows.
func (t *Attempt) Note(change func(p *workloadops.Progress)) { t.details.Note(change) }

// Record makes sure that Temporal has what the attempt knows, before a write after which nothing in the cluster tells it. It fails with
// heartbeat.ErrSuperseded when nobody wants the attempt any more: then the write must not be made.
func (t *Attempt) Record(ctx context.Context) error { return t.details.Record(ctx, t.options.Recorder) }

// Read counts a successful read of what the job is about: the time since the one before it counts against the deadline.
func (t *Attempt) Read() {
	t.details.Note(func(p *workloadops.Progress) { p.Read(t.options.Now()) })
}

// Overdue says that the deadline is over.
func (t *Attempt) Overdue() bool { return t.terms.DeadlineSeconds > 0 && t.left() <= 0 }

// left is how much is left of the deadline.
func (t *Attempt) left() time.Duration {
	p := t.details.Now()
	return time.Duration(t.terms.DeadlineSeconds)*time.Second - p.Elapsed()
}

// reached ends an outage. Reads alone do not: a cluster that answers reads but no writes is still in trouble.
func (t *Attempt) reached() {
	t.alive = time.Now()
	t.forbiddenSince = time.Time{}
	t.details.Note(func(p *workloadops.Progress) { p.Reached() })
}

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
	if !now.Before(t.Until()) {
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
	within := t.Until().Sub(now)
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
	case <-Stopping(ctx):
		return t.notReady()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stopping is closed when the worker is asked to stop; it never is outside of a worker.
func Stopping(ctx context.Context) <-chan struct{} {
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
