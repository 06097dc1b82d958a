package serving

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workloadops"
)

// lookEvery is how often a waiting attempt looks at the clock, and at the Deployment while no watch can be relied on.
const lookEvery = time.Second

// Prepare says, without a write, whether the party can run a version. It fails with a failure.Kind as the error's type; of several parties the answer says how
// each has ended.
func (a *Activities) Prepare(ctx context.Context, req serving.PartyRequest) (*serving.TogetherResult, error) {
	return a.step(ctx, req, a.prepare)
}

func (a *Activities) prepare(ctx context.Context, req serving.PartyRequest) (*serving.Seen, error) {
	_, err := a.ready(ctx, req)
	return nil, err
}

// ready is what a party has been found ready for: what it is to have, and the Deployment as it stood. Its zero value is nothing.
type ready struct {
	objects serving.Objects
	looked  time.Time
	found   *appsv1.Deployment
}

// ready looks whether a party can run a version, without a write.
func (a *Activities) ready(ctx context.Context, req serving.PartyRequest) (found ready, err error) {
	err = a.run(ctx, &job{req: req, round: func(ctx context.Context, _ *job) (attempt.Next, error) {
		objects, err := a.render(ctx, req)
		if err != nil {
			return attempt.Next{}, err
		}
		w := &writer{a: a, req: req, dry: true}
		if _, err = w.all(ctx, objects); err == nil {
			found = ready{objects: objects, looked: w.looked, found: w.found}
		}
		// NotReady: a former serving is still there. It will be gone when the party is brought to the version.
		return attempt.Next{Action: attempt.Done}, failure.Ignore(err, failure.NotReady)
	}})
	return found, err
}

// Apply brings the party to a version and waits until all its pods run it. It fails with a failure.Kind as the error's type; NotReady is to
// be tried again. Of several parties the answer says how each has ended.
func (a *Activities) Apply(ctx context.Context, req serving.PartyRequest) (*serving.TogetherResult, error) {
	return a.step(ctx, req, a.apply)
}

func (a *Activities) apply(ctx context.Context, req serving.PartyRequest) (*serving.Seen, error) {
	return a.bring(ctx, req, ready{})
}

// bring brings a party to a version that it has just been found ready for, and says what it runs then.
func (a *Activities) bring(ctx context.Context, req serving.PartyRequest, found ready) (*serving.Seen, error) {
	wake, leave := a.watch.waiting.Subscribe(name{req.Domain, req.Deployment})
	defer leave()
	b := &bringing{wake: wake, ready: found}
	err := a.run(ctx, &job{req: req, begun: found.objects.Deployment != nil, round: b.round, giveUp: func(ctx context.Context, j *job) {
		if err := j.free(ctx); err != nil { // the claim of an operation that is over may be taken over as it is
			a.options.Logger.Warn("a claim could not be given back", "deployment", req.Domain+"/"+req.Deployment, "error", err)
		}
	}})
	return b.seen, err
}

type bringing struct {
	wake <-chan struct{}
	// ready is what was looked at before, until it is written.
	ready ready
	// written says that all objects were written, objects what they are to be: from then on only the Deployment is looked at.
	written bool
	objects serving.Objects
	// begun says that this attempt has had a first look.
	begun bool
	// seen is what it runs when all its pods run it.
	seen *serving.Seen
	// last is the Deployment as this attempt has written it, at.
	last *appsv1.Deployment
	at   time.Time
}

// round writes what differs, and judges how far the Deployment is. After any trouble everything is looked at anew.
func (b *bringing) round(ctx context.Context, j *job) (next attempt.Next, err error) {
	defer func() { b.written = b.written && err == nil }()
	d, err := b.deployment(ctx, j)
	if err != nil {
		return next, err
	}
	state, why := serving.Judge(d, j.req.Version)
	j.Read()
	next = attempt.Next{Action: attempt.Wait, Reason: why, Within: lookEvery}
	switch state {
	case serving.DeployedWhole:
		return attempt.Next{Action: attempt.Done}, b.finish(ctx, j, d)
	case serving.DeployedNot:
		b.written = false // somebody has changed or deleted it since
	case serving.DeployedComing:
		next.Listen = func(context.Context) (<-chan struct{}, error) { return b.wake, nil }
		deadline := time.Duration(j.req.DeadlineSeconds) * time.Second
		if err := serving.CheckPodsAllowed(d, j.Progress().Elapsed(), deadline, j.Now()); err != nil {
			return next, err
		}
		if j.Overdue() {
			return next, j.stuck(ctx, d, fmt.Sprintf("%s after %d s", why, j.req.DeadlineSeconds))
		}
	}
	return next, nil
}

// deployment is the Deployment as it was written, or as it has become since.
func (b *bringing) deployment(ctx context.Context, j *job) (*appsv1.Deployment, error) {
	if b.written {
		return b.read(ctx, j)
	}
	if !b.begun {
		b.begun = true
		if d := j.written(); d != nil {
			b.written = true
			return d, nil
		}
	}
	objects, w := b.ready.objects, &writer{a: j.a, req: j.req, looked: b.ready.looked, found: b.ready.found}
	b.ready = ready{} // after any trouble everything is looked at anew
	if objects.Deployment == nil {
		var err error
		if objects, err = j.a.render(ctx, j.req); err != nil {
			return nil, err
		}
	}
	d, err := w.all(ctx, objects)
	if err != nil {
		return nil, err
	}
	b.written, b.objects, b.last, b.at = true, objects, d, time.Now()
	return d, nil
}

// written is the Deployment if the watch shows that an attempt before this one has written it in this very step, and with it everything, since it is written last; nil when it
// does not.
func (j *job) written() *appsv1.Deployment {
	d, live := j.a.watch.deployment(name{j.req.Domain, j.req.Deployment})
	if !live || d == nil || d.DeletionTimestamp != nil || d.Annotations[workloadops.AnnotationClaimedBy] != j.req.Claim ||
		d.Annotations[serving.AnnotationVersion] != j.req.Version || serving.TokenOf(d) != j.req.Token() {
		return nil
	}
	if intact, err := j.a.watch.digests.intact(d); err != nil || !intact {
		return nil
	}
	return d
}

// watchPatience is how long a watch may take to tell of a write before the API server is asked.
const watchPatience = 5 * time.Second

// read is the Deployment as the watch has it, or as the API server has it while the watch cannot be relied on; nil when it is gone. A watch that
// has not told of the write yet will: nobody else is asked meanwhile.
func (b *bringing) read(ctx context.Context, j *job) (*appsv1.Deployment, error) {
	of := name{j.req.Domain, j.req.Deployment}
	d, live := j.a.watch.deployment(of)
	switch {
	case live && d != nil && d.Annotations[workloadops.AnnotationClaimedBy] == j.req.Claim:
		return d, nil
	case live && b.last != nil && time.Since(b.at) < watchPatience:
		return b.last, nil
	}
	return j.a.deployment(ctx, of)
}

// stuck is the failure of a Deployment that does not come up, with the word of its pods.
func (j *job) stuck(ctx context.Context, d *appsv1.Deployment, why string) error {
	if reason, message, err := j.a.podTrouble(ctx, d); err == nil && reason != "" {
		why += ": " + strings.TrimSuffix(reason+": "+message, ": ")
	}
	return failure.New(failure.WorkloadFailed, "Deployment %s/%s: %s", j.req.Domain, j.req.Deployment, why)
}

// finish removes what an earlier version had besides, and gives the Deployment free.
func (b *bringing) finish(ctx context.Context, j *job, d *appsv1.Deployment) (err error) {
	if b.objects.Deployment == nil {
		if b.objects, err = j.a.render(ctx, j.req); err != nil {
			return err
		}
	}
	if err := j.a.prune(ctx, j.req, b.objects); err != nil {
		return err
	}
	b.seen = j.a.watch.whole(d)
	if d.Annotations[workloadops.AnnotationClaimedBy] != j.req.Claim {
		return nil
	}
	return j.free(ctx)
}

// free gives the Deployment free, unless it is not the operation's any more.
func (j *job) free(ctx context.Context) error {
	held := jsonpatch.Annotation(workloadops.AnnotationClaimedBy)
	patch, err := json.Marshal([]jsonpatch.Op{jsonpatch.Test(held, j.req.Claim), jsonpatch.Remove(held),
		jsonpatch.Remove(jsonpatch.Label(workloadops.LabelClaimed))})
	if err != nil {
		return err
	}
	call, cancel := j.a.call(ctx)
	defer cancel()
	failpoint.Hit("serving.Deployment.free.before")
	_, err = j.a.client.AppsV1().Deployments(j.req.Domain).Patch(call, j.req.Deployment, types.JSONPatchType, patch,
		metav1.PatchOptions{FieldManager: serving.FieldManager})
	failpoint.Hit("serving.Deployment.free.after")
	if err != nil && (apierrors.IsNotFound(err) || apierrors.IsInvalid(err)) {
		return nil // it is not ours any more: there is nothing to give free
	}
	return err
}

// frozenFor is after how long without a sign of life an attempt takes itself for dead, as Temporal does (the heartbeat timeout of the
// workflows): another attempt, or another operation, has gone on, and where a Deployment was removed since nothing tells so.
const frozenFor = 10 * time.Second

type job struct {
	*attempt.Attempt
	a   *Activities
	req serving.PartyRequest
	// begun says that it goes on with what has been begun in this activity.
	begun bool
	// round takes one look and does what is to be done.
	round func(ctx context.Context, j *job) (attempt.Next, error)
	// giveUp, where there is one, tidies up after a failure that is not tried again by itself.
	giveUp func(ctx context.Context, j *job)
}

// run makes one attempt at a job.
func (a *Activities) run(ctx context.Context, j *job) error {
	if err := a.check(j.req); err != nil {
		return attempt.ApplicationError(err)
	}
	j.a = a
	j.Attempt = attempt.Start(ctx, attempt.Options{ListenFor: a.options.ListenFor, Turns: a.turns, Now: a.options.Now, FrozenAfter: frozenFor, Begun: j.begun},
		attempt.Terms{
			Subject: "Deployment " + j.req.Domain + "/" + j.req.Deployment, DeadlineSeconds: j.req.DeadlineSeconds,
			SpentSeconds: j.req.SpentSeconds, UnreachableBudgetSeconds: j.req.UnreachableBudgetSeconds,
			KnownFailure: j.req.KnownFailure, KnownFailureRetry: serving.OwedRetryInterval,
		})
	return j.Run(ctx, j)
}

// Reconcile is one round. What is in the way may be waited for until the deadline.
func (j *job) Reconcile(ctx context.Context) (attempt.Next, error) {
	next, err := j.round(ctx, j)
	var f *failure.Error
	if err == nil || errors.As(err, &f) && f.Kind.Retryable() {
		j.Read()
	}
	if f != nil && f.Kind.Retryable() && j.Overdue() {
		return next, failure.New(failure.WorkloadFailed, "%s after %d s", f.Message, j.req.DeadlineSeconds)
	}
	return next, err
}

// Missing is the failure of a namespace that is not there.
func (j *job) Missing(err error) error {
	return failure.New(failure.Refused, "namespace %s of party %s does not take it: %s", j.req.Domain, j.req.Domain, kube.Text(err))
}

// Failed tidies up when a failure is final, unless the claim is that of a later step.
func (j *job) Failed(ctx context.Context, f *failure.Error) *failure.Error {
	if j.giveUp != nil && f.Kind != failure.ClaimLost {
		j.giveUp(ctx, j)
	}
	return f
}
