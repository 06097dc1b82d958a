package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"

	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/activities/outcome"
	"slipway.io/slipway/activities/trouble"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workloadops"
)

const (
	// firstLook is after how much waiting an attempt first asks the pods what keeps them, lookEvery how often it does so then; it also asks before it gives
	// its place back.
	firstLook, lookEvery = 2 * time.Second, 5 * time.Second
	// pauseBetweenTries is the pause after a request that failed.
	pauseBetweenTries = time.Second
	// permissionGrace is how long a lack of permission must last to be believed: an API server that has just started does not know all rules yet.
	permissionGrace = 5 * time.Second
	// retryShortest and retryLongest limit the pause between two attempts, which grows with the time that is used.
	retryShortest, retryLongest = 2 * time.Second, 15 * time.Second
)

// attempt is one attempt at one operation.
type attempt struct {
	a    *Activities
	req  workloadops.Request
	kind kind
	beat *beat
	sub  subscription
	// until is when the attempt gives its place back; nextLook when it next asks the pods.
	until, nextLook time.Time
	// fresh is the object as a write of ours returned it, which saves a read; nil when it must be read.
	fresh *object
	// rejected is the version on which the server did not accept a change.
	rejected      string
	rejectedError error
	// forbiddenSince is when a permission was first found lacking, in a row.
	forbiddenSince time.Time
	// podsAt is where a watch of the pods goes on from.
	podsAt podList
}

// Run brings one workload to what the request asks, and gives back what it borrowed. It fails with a failure.Kind as the error's type; NotReady is to be
// tried again. What it knows travels from attempt to attempt as heartbeat details (workloadops.Progress).
func (a *Activities) Run(ctx context.Context, req workloadops.Request) (workloadops.Result, error) {
	if f := a.check(req); f != nil {
		return workloadops.Result{}, outcome.Wrap(f)
	}
	b, stop := heartbeat.Start(ctx, workloadops.Progress{ElapsedSeconds: float64(req.SpentSeconds)})
	defer stop()
	result, err := a.newAttempt(req, b).run(ctx)
	return result, outcome.Wrap(err)
}

// check refuses what no look at the cluster could make right.
func (a *Activities) check(req workloadops.Request) *failure.Error {
	if f := workloadops.Validate(req); f != nil {
		return f
	}
	if !a.serves(req.Workload.Namespace) {
		return failure.New(failure.Refused, "%s: this party's worker does not serve the namespace %s", req.Workload, req.Workload.Namespace)
	}
	return nil
}

func (a *Activities) newAttempt(req workloadops.Request, b *beat) *attempt {
	now := a.options.Now()
	return &attempt{a: a, req: req, kind: a.kinds[req.Workload.WorkloadRef.Kind], beat: b, until: now.Add(a.options.ListenFor), nextLook: now.Add(firstLook)}
}

func (t *attempt) run(ctx context.Context) (workloadops.Result, error) {
	ref := t.req.Workload
	t.sub = t.a.hub.subscribe(target{ref.WorkloadRef.Kind, ref.Namespace, ref.WorkloadRef.Name})
	defer t.sub.leave()
	for {
		end, err := t.step(ctx)
		if err != nil {
			if err = t.sort(ctx, err); err != nil {
				return workloadops.Result{}, err
			}
			continue
		}
		if end == nil {
			continue
		}
		if end.Failure != nil {
			return workloadops.Result{}, end.Failure
		}
		return *end.Result, nil
	}
}

// step takes one look and does what is decided; it returns the end when that is reached.
func (t *attempt) step(ctx context.Context) (*workloadops.Ending, error) {
	o, err := t.read(ctx)
	if err != nil {
		return nil, err
	}
	d, err := t.decide(ctx, o)
	if err != nil {
		return nil, err
	}
	t.beat.Note(func(p *workloadops.Progress) { p.Message = d.Reason })
	switch d.Action {
	case workloadops.ActWrite:
		end, err := t.write(ctx, o, d)
		return end, t.reached(err)
	case workloadops.ActDelete:
		return nil, t.reached(t.delete(ctx, d.Delete))
	case workloadops.ActWait:
		_ = t.reached(nil)
		return nil, t.wait(ctx, d)
	default:
		end, _ := d.Ends()
		return &end, nil
	}
}

// reached ends an outage, unless there is an error: a cluster that answers reads but no writes is still in trouble.
func (t *attempt) reached(err error) error {
	if err == nil {
		t.forbiddenSince = time.Time{}
		t.beat.Note(func(p *workloadops.Progress) { p.Reached() })
	}
	return err
}

// read reads the workload, unless a write of ours has just returned it.
func (t *attempt) read(ctx context.Context) (*object, error) {
	o := t.fresh
	t.fresh = nil
	if o == nil {
		call, cancel := t.a.call(ctx)
		defer cancel()
		var err error
		if o, err = t.kind.get(call, t.req.Workload.Namespace, t.req.Workload.WorkloadRef.Name); err != nil {
			return nil, err
		}
	}
	if t.rejected != "" && t.rejected == o.meta.ResourceVersion {
		// It is still what it was, so the change itself is what the server does not accept.
		return nil, failure.New(failure.Refused, "%s: its cluster does not accept the change: %s", t.req.Workload, text(t.rejectedError))
	}
	t.rejected = ""
	t.beat.Note(func(p *workloadops.Progress) { p.Read(t.a.options.Now()) })
	return o, nil
}

// decide lets release/workloadops decide, showing it the pods when it asks for them or when it is time to ask them what keeps them.
func (t *attempt) decide(ctx context.Context, o *object) (workloadops.Decision, error) {
	now := t.a.options.Now()
	p := t.beat.Now()
	seen := o.seen
	seen.Now, seen.Elapsed, seen.Held, seen.Ending = now, p.Elapsed(), p.Held, p.Ending
	if seen.Claim == t.req.Claim {
		// As long as the claim is there, the last write has not been made.
		t.beat.Note(func(p *workloadops.Progress) { p.Held, p.Ending = true, nil })
	}
	d := workloadops.Decide(t.req, seen)
	if d.Action != workloadops.ActLook && (d.Action != workloadops.ActWait || now.Before(t.nextLook)) {
		return d, nil
	}
	if !now.Before(t.nextLook) {
		t.nextLook = minTime(t.until, now.Add(lookEvery))
	}
	list, err := t.a.pods(ctx, t.kind, o)
	if err != nil {
		return d, err
	}
	t.podsAt = list
	seen.Pods, seen.PodsSeen = list.pods, true
	if d = workloadops.Decide(t.req, seen); d.LookAgain > 0 {
		t.nextLook = minTime(t.until, now.Add(d.LookAgain))
	}
	return d, nil
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// sort goes on after trouble that may pass (nil), or ends the attempt.
func (t *attempt) sort(ctx context.Context, err error) error {
	var f *failure.Error
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errSuperseded):
		return err
	case errors.As(err, &f):
		if f.Kind == failure.Refused {
			return t.giveUp(ctx, f)
		}
		return f
	}
	now, spent := t.a.options.Now(), t.spent()
	switch trouble.Sort(err) {
	case changed:
		return nil
	case missing:
		return t.gone()
	case refused, rejected:
		return t.giveUp(ctx, failure.New(failure.Refused, "%s: its cluster does not accept this: %s", t.req.Workload, text(err)))
	case forbidden:
		if t.forbiddenSince.IsZero() {
			t.forbiddenSince = now
		}
		if now.Sub(t.forbiddenSince) >= permissionGrace {
			return forbiddenFailure(t.req, spent, err)
		}
	case unreachable:
		var outage time.Duration
		t.beat.Note(func(p *workloadops.Progress) {
			outage = p.Failed(now)
			p.Message = "its cluster is out of reach: " + text(err)
		})
		if outage > time.Duration(t.req.UnreachableBudgetSeconds)*time.Second {
			return unreachableFailure(t.req, spent, err)
		}
	}
	if !now.Before(t.until) && t.forbiddenSince.IsZero() {
		return t.notReady()
	}
	return t.pause(ctx, pauseBetweenTries)
}

// giveUp ends the operation badly, giving back what is held if the cluster lets us.
func (t *attempt) giveUp(ctx context.Context, f *failure.Error) error {
	t.fresh, t.rejected = nil, ""
	o, err := t.read(ctx)
	if err == nil {
		if d := workloadops.Restore(t.req, o.seen); d.Action == workloadops.ActWrite {
			_, err = t.patch(ctx, o, d.Write)
		}
	}
	if err != nil && trouble.Sort(err) != missing {
		f.Owed = t.beat.Now().Held
		f.Message += fmt.Sprintf("; what was borrowed could not be given back yet: %s", text(err))
	}
	return f
}

func (t *attempt) gone() error {
	if t.beat.Now().Held {
		return failure.New(failure.WorkloadFailed, "%s was deleted by somebody else in the middle of %s", t.req.Workload, t.req.Operation)
	}
	return failure.New(failure.NotFound, "%s does not exist: create it, or take it out of the catalogue", t.req.Workload)
}

// notReady gives the attempt's place back, to be tried again. The pause grows with the time that is used, and does not reach past the deadline.
func (t *attempt) notReady() error {
	p := t.beat.Now()
	left := time.Duration(t.req.DeadlineSeconds)*time.Second - p.Elapsed()
	after := min(max(p.Elapsed()/20, retryShortest), retryLongest, max(left, time.Second))
	return &failure.Error{Kind: failure.NotReady, Message: p.Message, RetryAfter: after}
}

func (t *attempt) spent() int64 { return int64(t.beat.Now().Elapsed() / time.Second) }

// pause waits a while, less when the attempt is to end.
func (t *attempt) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
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
