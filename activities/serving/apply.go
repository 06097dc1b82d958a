package serving

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/activities/failpoint"
	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/activities/outcome"
	"slipway.io/slipway/activities/trouble"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workloadops"
)

const (
	// retryFormer is how long an operation waits for a former serving to go.
	retryFormer = 2 * time.Second
	// retryShortest and retryLongest limit the pause between two attempts, which grows with the time that is used.
	retryShortest, retryLongest = 2 * time.Second, 15 * time.Second
	// pauseBetweenTries is the pause after a request that failed.
	pauseBetweenTries = time.Second
	// lookEvery is how often a waiting attempt looks at the clock, and at the Deployment while no watch can be relied on.
	lookEvery = time.Second
	// frozenFor is after how long without a sign of life an attempt takes itself for dead, as Temporal does (the heartbeat timeout of the workflows): another
	// attempt, or another operation, has gone on, and where a Deployment was removed since nothing tells so.
	frozenFor = 10 * time.Second
	// permissionGrace is how long a lack of permission must last to be believed: an API server that has just started does not know all rules yet.
	permissionGrace = 5 * time.Second
)

// attempt is one attempt at one activity.
type attempt struct {
	a     *Activities
	req   serving.PartyRequest
	beat  *heartbeat.Beat[workloadops.Progress]
	until time.Time
	// stirred is when the attempt last gave a sign of life.
	stirred time.Time
	// forbiddenSince is when a permission was first found lacking, in a row.
	forbiddenSince time.Time
	// step takes one look and does what is to be done; done says that nothing is left.
	step func(ctx context.Context) (done bool, err error)
	// giveUp, where there is one, tidies up after a failure that is not tried again by itself.
	giveUp func(ctx context.Context)
}

// run repeats the step until it is done, fails for good, or the attempt's time is over.
func (a *Activities) run(ctx context.Context, req serving.PartyRequest, make func(t *attempt) func(ctx context.Context) (bool, error)) error {
	if err := a.check(req); err != nil {
		return outcome.Wrap(err)
	}
	beat, stop := heartbeat.Start(ctx, workloadops.Progress{})
	defer stop()
	t := &attempt{a: a, req: req, beat: beat, until: a.options.Now().Add(a.options.ListenFor)}
	t.step, t.stirred = make(t), time.Now()
	for {
		if time.Since(t.stirred) > frozenFor {
			return outcome.Wrap(errFrozen())
		}
		t.stirred = time.Now()
		done, err := t.step(ctx)
		if err == nil && done {
			return nil
		}
		if err == nil {
			t.reached()
			if a.options.Now().Before(t.until) {
				continue
			}
			err = t.notReady()
		}
		if err = t.sort(ctx, err); err != nil {
			t.fail(ctx, err)
			return outcome.Wrap(untold(req, err))
		}
	}
}

// untold leaves a failure of what is owed to the server, when the operation knows of it already.
func untold(req serving.PartyRequest, err error) error {
	var f *failure.Error
	if req.Told == "" || !errors.As(err, &f) || f.Kind.Retryable() || f.Message != req.Told {
		return err
	}
	return &failure.Error{Kind: failure.NotReady, Message: f.Message, RetryAfter: serving.OwedAgain}
}

// fail tidies up when a failure is final.
func (t *attempt) fail(ctx context.Context, err error) {
	var f *failure.Error
	if t.giveUp != nil && errors.As(err, &f) && !f.Kind.Retryable() && f.Kind != failure.ClaimLost { // the claim is that of a later step then
		t.giveUp(ctx)
	}
}

// errFrozen ends an attempt that was held up; one that is wanted still is made again.
func errFrozen() error {
	return &failure.Error{Kind: failure.NotReady, RetryAfter: retryShortest, Message: "the attempt was held up for longer than its heartbeat, and has ended itself"}
}

func (t *attempt) reached() {
	t.stirred = time.Now()
	t.forbiddenSince = time.Time{}
	t.beat.Note(func(p *workloadops.Progress) {
		p.Read(t.a.options.Now())
		p.Reached()
	})
}

// sort goes on after trouble that may pass (nil), or ends the attempt.
func (t *attempt) sort(ctx context.Context, err error) error {
	var f *failure.Error
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.As(err, &f) {
		if f.Kind == failure.NotReady {
			t.beat.Note(func(p *workloadops.Progress) { p.Message = f.Message })
			t.reached()
			return t.late(f)
		}
		return f
	}
	now := t.a.options.Now()
	switch trouble.Sort(err) {
	case trouble.Changed:
		return t.pause(ctx, pauseBetweenTries/10)
	case trouble.Missing:
		return failure.New(failure.Refused, "namespace %s of party %s does not take it: %s", t.req.Domain, t.req.Domain, trouble.Text(err))
	case trouble.Rejected, trouble.Refused:
		return failure.New(failure.Refused, "the cluster of party %s does not accept it: %s", t.req.Domain, trouble.Text(err))
	case trouble.Forbidden:
		if t.forbiddenSince.IsZero() {
			t.forbiddenSince = now
		}
		if now.Sub(t.forbiddenSince) >= permissionGrace {
			return failure.New(failure.Refused, "the worker of party %s lacks a permission, which has to be granted: %s", t.req.Domain, trouble.Text(err))
		}
	case trouble.Unreachable:
		var outage time.Duration
		t.beat.Note(func(p *workloadops.Progress) {
			outage = p.Failed(now)
			p.Message = "its cluster is out of reach: " + trouble.Text(err)
		})
		if budget := time.Duration(t.req.UnreachableBudgetSeconds) * time.Second; budget > 0 && outage > budget {
			return failure.New(failure.Unreachable, "the cluster of party %s has been out of its worker's reach for more than %d s: %s", t.req.Domain,
				t.req.UnreachableBudgetSeconds, trouble.Text(err))
		}
	}
	if !now.Before(t.until) && t.forbiddenSince.IsZero() {
		return t.notReady()
	}
	return t.pause(ctx, pauseBetweenTries)
}

// notReady gives the attempt's place back, to be tried again. The pause grows with the time that is used.
func (t *attempt) notReady() error {
	p := t.beat.Now()
	return &failure.Error{Kind: failure.NotReady, Message: p.Message, RetryAfter: min(max(p.Elapsed()/20, retryShortest), retryLongest)}
}

// late is the failure of what has not come about within its deadline, or the wait that goes on.
func (t *attempt) late(waiting *failure.Error) error {
	deadline := time.Duration(t.req.DeadlineSeconds) * time.Second
	if p := t.beat.Now(); deadline > 0 && p.Elapsed() >= deadline {
		return failure.New(failure.WorkloadFailed, "%s after %d s", waiting.Message, t.req.DeadlineSeconds)
	}
	return waiting
}

// pause waits a while, less when the worker is to end.
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

// Prepare says, without a write, whether the party can run a version. It fails with a failure.Kind as the error's type.
func (a *Activities) Prepare(ctx context.Context, req serving.PartyRequest) error {
	return a.run(ctx, req, func(*attempt) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			objects, err := a.render(ctx, req)
			if err != nil {
				return false, err
			}
			_, err = (&writer{a: a, req: req, dry: true}).all(ctx, objects)
			var waits *failure.Error
			if errors.As(err, &waits) && waits.Kind == failure.NotReady {
				return true, nil // a former serving will be gone when it is brought about
			}
			return err == nil, err
		}
	})
}

// Apply brings the party to a version and waits until all its pods run it. It fails with a failure.Kind as the error's type; NotReady is to be tried again.
func (a *Activities) Apply(ctx context.Context, req serving.PartyRequest) error {
	wake, leave := a.watch.subscribe(name{req.Domain, req.Deployment})
	defer leave()
	return a.run(ctx, req, func(t *attempt) func(context.Context) (bool, error) {
		t.giveUp = func(ctx context.Context) {
			if err := t.free(ctx); err != nil { // the claim of an operation that is over may be taken over as it is
				a.options.Logger.Warn("a claim could not be given back", "deployment", req.Domain+"/"+req.Deployment, "error", err)
			}
		}
		return func(ctx context.Context) (bool, error) { return t.apply(ctx, wake) }
	})
}

func (t *attempt) apply(ctx context.Context, wake <-chan struct{}) (done bool, err error) {
	objects, err := t.a.render(ctx, t.req)
	if err != nil {
		return false, err
	}
	d, err := (&writer{a: t.a, req: t.req}).all(ctx, objects)
	if err != nil {
		return false, err
	}
	for {
		state, why := serving.Judge(d, t.req.Version)
		t.beat.Note(func(p *workloadops.Progress) { p.Message = why })
		t.reached()
		switch state {
		case serving.DeployedWhole:
			return true, t.finish(ctx, objects, d)
		case serving.DeployedNot:
			return false, t.pause(ctx, pauseBetweenTries) // somebody has changed or deleted it since
		case serving.DeployedComing:
		}
		if err := t.wait(ctx, d, wake, why); err != nil {
			return false, err
		}
		if d, err = t.read(ctx); err != nil {
			return false, err
		}
	}
}

// wait waits for a change of the Deployment; the attempt's own end and the deadline end the wait.
func (t *attempt) wait(ctx context.Context, d *appsv1.Deployment, wake <-chan struct{}, why string) error {
	now := t.a.options.Now()
	deadline := time.Duration(t.req.DeadlineSeconds) * time.Second
	if t.beat.Now().Elapsed() >= deadline {
		return t.stuck(ctx, d, fmt.Sprintf("%s after %d s", why, t.req.DeadlineSeconds))
	}
	if !now.Before(t.until) {
		return t.notReady()
	}
	timer := time.NewTimer(min(t.until.Sub(now), lookEvery))
	defer timer.Stop()
	select {
	case <-wake:
	case <-timer.C:
	case <-stopping(ctx):
		return t.notReady()
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// read is the Deployment as the watch has it, or as the API server has it while the watch cannot be relied on; nil when it is gone.
func (t *attempt) read(ctx context.Context) (*appsv1.Deployment, error) {
	if d, live := t.a.watch.deployment(name{t.req.Domain, t.req.Deployment}); live && d != nil && d.Annotations[workloadops.AnnotationClaimedBy] == t.req.Claim {
		return d, nil
	}
	call, cancel := t.a.call(ctx)
	defer cancel()
	d, err := t.a.client.AppsV1().Deployments(t.req.Domain).Get(call, t.req.Deployment, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return d, err
}

// stuck is the failure of a Deployment that does not come up, with the word of its pods.
func (t *attempt) stuck(ctx context.Context, d *appsv1.Deployment, why string) error {
	if reason, message, err := t.a.podTrouble(ctx, d); err == nil && reason != "" {
		why += ": " + strings.TrimSuffix(reason+": "+message, ": ")
	}
	return failure.New(failure.WorkloadFailed, "Deployment %s/%s: %s", t.req.Domain, t.req.Deployment, why)
}

// finish removes what an earlier version had besides, and gives the Deployment free.
func (t *attempt) finish(ctx context.Context, objects serving.Objects, d *appsv1.Deployment) error {
	if err := t.a.prune(ctx, t.req, objects); err != nil {
		return err
	}
	if d.Annotations[workloadops.AnnotationClaimedBy] != t.req.Claim {
		return nil
	}
	return t.free(ctx)
}

// free gives the Deployment free, unless it is not the operation's any more.
func (t *attempt) free(ctx context.Context) error {
	at := "/metadata/annotations/" + strings.ReplaceAll(workloadops.AnnotationClaimedBy, "/", "~1")
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": at, "value": t.req.Claim}, {"op": "remove", "path": at},
		{"op": "remove", "path": "/metadata/labels/" + strings.ReplaceAll(workloadops.LabelClaimed, "/", "~1")},
	})
	if err != nil {
		return err
	}
	call, cancel := t.a.call(ctx)
	defer cancel()
	failpoint.Hit("serving.Deployment.free.before")
	_, err = t.a.client.AppsV1().Deployments(t.req.Domain).Patch(call, t.req.Deployment, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: serving.FieldManager})
	failpoint.Hit("serving.Deployment.free.after")
	if err != nil && (apierrors.IsNotFound(err) || apierrors.IsInvalid(err)) {
		return nil // it is not ours any more: there is nothing to give free
	}
	return err
}
