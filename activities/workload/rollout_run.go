package workload

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/activities/trouble"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/workloadops"
)

// rolloutAttempt is one attempt at one of a rollout's activities.
type rolloutAttempt struct {
	a       *Activities
	subject rollout.Subject
	style   rollout.Style
	kind    rolloutKind
	tech    pods.Technique
	beat    *beat
	decide  func(pods.Observed) pods.Decision
	// halt brings the workload to rest before the activity fails, with failed; nil: it leaves nothing that would have to rest.
	halt   func(pods.Observed) pods.Decision
	failed *failure.Error
	// beginning: the workload is not yet ours.
	beginning bool
	// change makes the new template, whose digest is template once the workflow knows it; wantsNew says that the activity has to know it.
	change   rollout.Change
	template string
	wantsNew bool
	// halting says that what cannot be known of the new template is not needed: a workload that does not take it has no pods of it.
	halting bool
	// orphans: the workload was deleted, and only its autoscalers are seen to.
	orphans bool
	// expected and expectedTemplate are the answer of the dry run.
	expected         string
	expectedTemplate map[string]any

	sub, extraSub subscription
	// until is when the attempt gives its place back; nextLook when it next asks the pods.
	until, nextLook time.Time
	scalers         map[string]*unstructured.Unstructured
	// rejected is the version on which the server did not accept a change.
	rejected string
	// forbiddenSince is when a permission was first found lacking, in a row.
	forbiddenSince time.Time
}

func (t *rolloutAttempt) run(ctx context.Context) (pods.Decision, error) {
	ref := t.subject.Workload.WorkloadRef
	t.sub = t.a.hub.subscribe(target{hubKey(ref), t.subject.Workload.Namespace, ref.Name})
	defer t.sub.leave()
	if ref.Kind == workloadops.KindDeployment {
		t.extraSub = t.a.hub.subscribe(target{hubKey(ref), t.subject.Workload.Namespace, ref.Name + rollout.CanarySuffix})
		defer t.extraSub.leave()
	}
	for {
		d, ended, err := t.step(ctx)
		if err == nil && !ended {
			continue
		}
		if err == nil && d.Failure != nil {
			err = d.Failure
		}
		switch {
		case err == nil && t.failed != nil:
			return pods.Decision{}, t.failed
		case err == nil:
			return d, nil
		}
		if err = t.sort(ctx, err); err != nil && !t.rests(err) {
			return pods.Decision{}, t.told(err)
		}
	}
}

// rests has an activity that fails bring its workload to rest first: from its answer on nobody moves it on until somebody has decided.
func (t *rolloutAttempt) rests(err error) bool {
	var f *failure.Error
	if t.halt == nil || t.failed != nil || !errors.As(err, &f) {
		return false
	}
	switch f.Kind {
	case failure.WorkloadFailed, failure.Drift, failure.Refused:
	default: // it is not ours any more, or it is tried again
		return false
	}
	t.failed, t.decide, t.halting, t.rejected = f, t.halt, true, ""
	return true
}

// told is the failure to answer: of a workload that does not let itself be brought to rest, what came first.
func (t *rolloutAttempt) told(err error) error {
	var f *failure.Error
	if t.failed != nil && errors.As(err, &f) && f.Kind == failure.Refused {
		return t.failed
	}
	return err
}

// step takes one look and does what is decided; ended says that the activity ends with the decision.
func (t *rolloutAttempt) step(ctx context.Context) (d pods.Decision, ended bool, err error) {
	l, d, err := t.look(ctx)
	if err != nil {
		return d, false, err
	}
	t.beat.Note(func(p *workloadops.Progress) {
		p.Message = d.Reason
		if d.Numbers.Replicas > 0 {
			p.Updated, p.UpdatedReady = &d.Numbers.Updated, &d.Numbers.UpdatedReady
		}
	})
	switch d.Action {
	case pods.ActWrite:
		if d.Ends && d.Write.Release {
			if err := t.announce(ctx, d); err != nil {
				return d, false, err
			}
		}
		before := t.rejected
		if err := t.reached(t.write(ctx, l, d.Write)); err != nil {
			return d, false, err
		}
		return d, d.Ends && before == t.rejected, nil
	case pods.ActDelete:
		return d, false, t.reached(t.delete(ctx, d.Delete))
	case pods.ActExtra:
		return d, false, t.reached(t.changeExtra(ctx, l, d.Extra))
	case pods.ActAutoscaler:
		return d, false, t.reached(t.changeAutoscaler(ctx, d.Autoscaler))
	case pods.ActWait:
		_ = t.reached(nil)
		return d, false, t.wait(ctx, d)
	}
	return d, true, nil
}

// look reads the world and decides, asking the pods when it is time to or when the decision needs them.
func (t *rolloutAttempt) look(ctx context.Context) (*looked, pods.Decision, error) {
	if t.orphans {
		return t.lookAtOrphans(ctx)
	}
	l, err := t.observe(ctx)
	if err != nil {
		return nil, pods.Decision{}, err
	}
	t.choose(l)
	now := t.a.options.Now()
	before := t.beat.Now()
	t.beat.Note(func(p *workloadops.Progress) { p.Read(now) })
	if done := answered(before); done != nil && l.seen.Claim != t.subject.Claim {
		// The claim was given back with the last write of this very activity; only its answer was not heard.
		return l, *done, nil
	}
	if t.tech.ByPods() || !now.Before(t.nextLook) {
		t.nextLook = minTime(t.until, now.Add(lookEvery))
		if err := t.withPods(ctx, l); err != nil {
			return nil, pods.Decision{}, err
		}
	}
	d := t.decide(l.seen)
	if d.Action == pods.ActLook {
		if err := t.withPods(ctx, l); err != nil {
			return nil, pods.Decision{}, err
		}
		d = t.decide(l.seen)
	}
	if d.LookAgain > 0 {
		t.nextLook = minTime(t.until, now.Add(d.LookAgain))
	}
	return l, d, nil
}

// choose takes the technique of the style that is saved on the workload, once there is something saved.
func (t *rolloutAttempt) choose(l *looked) {
	if t.beginning || l.seen.Saved == nil {
		return
	}
	if tech, ok := pods.TechniqueOf(t.subject.Workload.WorkloadRef, l.seen.Saved.Style); ok {
		t.tech = tech
		l.seen.Settings = t.plain(l.object).Settings
	}
}

// announce puts the answer on record: once the claim is given back, nothing on the workload tells what was done.
func (t *rolloutAttempt) announce(ctx context.Context, d pods.Decision) error {
	raw, err := json.Marshal(d.Numbers)
	if err != nil {
		return err
	}
	t.beat.Note(func(p *workloadops.Progress) { p.Data = raw })
	return tell(ctx, t.beat, t.a.options.Recorder)
}

func (t *rolloutAttempt) reached(err error) error {
	if err == nil {
		t.forbiddenSince = time.Time{}
		t.beat.Note(func(p *workloadops.Progress) { p.Reached() })
	}
	return err
}

// wait listens until something changes, and ends the attempt when its time is over.
func (t *rolloutAttempt) wait(ctx context.Context, d pods.Decision) error {
	now := t.a.options.Now()
	if !now.Before(t.until) {
		return t.notReady(d.Reason)
	}
	timer := time.NewTimer(t.listenFor(now))
	defer timer.Stop()
	select {
	case <-t.sub.wake:
	case <-t.extraSub.wake:
	case <-timer.C:
	case <-stopping(ctx):
		return t.notReady(d.Reason)
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// listenFor is how long to listen without having looked again.
func (t *rolloutAttempt) listenFor(now time.Time) time.Duration {
	d := t.until.Sub(now)
	if now.Before(t.nextLook) {
		d = min(d, t.nextLook.Sub(now))
	}
	left := time.Duration(t.subject.DeadlineSeconds)*time.Second - t.beat.Now().Elapsed()
	d = min(d, max(left, 0)+10*time.Millisecond)
	if !t.sub.live(now) || t.extraSub.watch != nil && !t.extraSub.live(now) || t.tech.ByPods() {
		// Pods may get ready without a change of a number that the workload tells.
		d = min(d, rereadEvery)
	}
	return d
}

// notReady gives the attempt's place back, to be tried again.
func (t *rolloutAttempt) notReady(message string) error {
	p := t.beat.Now()
	left := time.Duration(t.subject.DeadlineSeconds)*time.Second - p.Elapsed()
	return &failure.Error{Kind: failure.NotReady, Message: message, RetryAfter: min(max(p.Elapsed()/20, retryShortest), retryLongest, max(left, time.Second))}
}

// sort goes on after trouble that may pass (nil), or ends the attempt.
func (t *rolloutAttempt) sort(ctx context.Context, err error) error {
	var f *failure.Error
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errSuperseded):
		return err
	case errors.As(err, &f):
		return f
	}
	now, spent := t.a.options.Now(), int64(t.beat.Now().Elapsed()/time.Second)
	as := workloadops.Request{Workload: t.subject.Workload, UnreachableBudgetSeconds: t.subject.UnreachableBudgetSeconds}
	switch trouble.Sort(err) {
	case changed:
		return nil
	case missing:
		return t.gone()
	case refused, rejected:
		return failure.New(failure.Refused, "%s: its cluster does not accept this: %s", t.subject.Workload, text(err))
	case forbidden:
		if t.forbiddenSince.IsZero() {
			t.forbiddenSince = now
		}
		if now.Sub(t.forbiddenSince) >= permissionGrace {
			return forbiddenFailure(as, spent, err)
		}
	case unreachable:
		var outage time.Duration
		t.beat.Note(func(p *workloadops.Progress) {
			outage = p.Failed(now)
			p.Message = "its cluster is out of reach: " + text(err)
		})
		if budget := t.subject.UnreachableBudgetSeconds; budget > 0 && outage > time.Duration(budget)*time.Second {
			return unreachableFailure(as, spent, err)
		}
	}
	if !now.Before(t.until) && t.forbiddenSince.IsZero() {
		return t.notReady(t.beat.Now().Message)
	}
	return t.pause(ctx, pauseBetweenTries)
}

func (t *rolloutAttempt) gone() error {
	if t.beginning {
		return failure.New(failure.NotFound, "%s does not exist: create it first", t.subject.Workload)
	}
	return failure.New(failure.Gone, "%s was deleted by somebody else in the middle of the rollout", t.subject.Workload)
}

// pause waits a while, less when the attempt is to end.
func (t *rolloutAttempt) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-stopping(ctx):
		return t.notReady(t.beat.Now().Message)
	case <-ctx.Done():
		return ctx.Err()
	}
}
