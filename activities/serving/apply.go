package serving

import (
	"context"
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
	"slipway.io/slipway/release/workload"
)

// pollInterval is how often a waiting attempt checks its deadline, and the Deployment while the watch is unreliable.
const pollInterval = time.Second

// Prepare checks, without a write, whether parties can run a version.
func (a *Activities) Prepare(ctx context.Context, req serving.GroupRequest) (*serving.GroupResult, error) {
	return a.runStep(ctx, req, a.prepare)
}

// prepared is the result of a successful check: the rendered objects, and the Deployment at that time. The zero value
// means no check.
type prepared struct {
	objects serving.Objects
	readAt  time.Time
	found   *appsv1.Deployment
}

func (a *Activities) prepare(ctx context.Context, m *member) (*serving.DeploymentSnapshot, error) {
	return nil, a.run(ctx, &job{req: m.req, round: func(ctx context.Context, _ *job) (attempt.Next, error) {
		objects, err := a.render(ctx, m.req)
		if err != nil {
			return attempt.Next{}, err
		}
		w := &writer{a: a, req: m.req, dry: true}
		if _, err = w.writeAll(ctx, objects); err == nil {
			m.ready = prepared{objects: objects, readAt: w.readAt, found: w.found}
		}
		// NotReady: objects of a deleted serving still exist. They will be deleted when the version is applied.
		return attempt.Next{Action: attempt.Done}, failure.Ignore(err, failure.NotReady)
	}})
}

// Apply applies a version to parties and waits until all their pods run it.
func (a *Activities) Apply(ctx context.Context, req serving.GroupRequest) (*serving.GroupResult, error) {
	return a.runStep(ctx, req, a.apply)
}

func (a *Activities) apply(ctx context.Context, m *member) (*serving.DeploymentSnapshot, error) {
	wake, leave := a.watch.waiting.Subscribe(name{m.req.Domain, m.req.Deployment})
	defer leave()
	b := &applyLoop{wake: wake, ready: m.ready}
	err := a.run(ctx, &job{req: m.req, begun: m.ready.objects.Deployment != nil, round: b.round,
		giveUp: func(ctx context.Context, j *job) {
			// the next operation may take over the claim of an operation that has ended
			if err := j.releaseClaim(ctx); err != nil {
				a.options.Logger.Warn("cannot release the claim", "deployment", j.req.Domain+"/"+j.req.Deployment,
					"error", err)
			}
		}})
	return b.seen, err
}

type applyLoop struct {
	wake <-chan struct{}
	// ready is the result of the check, until it is used for the first write.
	ready prepared
	// written is true when all objects were written, and objects are their wanted states: from then on only the
	// Deployment is read.
	written bool
	objects serving.Objects
	// begun is true after the first round of this attempt.
	begun bool
	// seen is the snapshot when all pods run the version.
	seen *serving.DeploymentSnapshot
	// last is the Deployment as this attempt has written it, at the time of the write.
	last *appsv1.Deployment
	at   time.Time
}

// round writes what differs, and checks the state of the Deployment. After any error everything is checked again.
func (b *applyLoop) round(ctx context.Context, j *job) (next attempt.Next, err error) {
	defer func() { b.written = b.written && err == nil }()
	d, err := b.deployment(ctx, j)
	if err != nil {
		return next, err
	}
	state, why := serving.DeployStateOf(d, j.req.Version)
	j.Read()
	next = attempt.Next{Action: attempt.Wait, Reason: why, Within: pollInterval}
	switch state {
	case serving.DeployStateComplete:
		return attempt.Next{Action: attempt.Done}, b.finish(ctx, j, d)
	case serving.DeployStateOther:
		b.written = false // another client has changed or deleted it since
	case serving.DeployStateProgressing:
		next.Listen = func(context.Context) (<-chan struct{}, error) { return b.wake, nil }
		deadline := time.Duration(j.req.DeadlineSeconds) * time.Second
		j.Note(func(p *workload.Progress) { p.RecordPods(d.Status.UpdatedReplicas, d.Status.AvailableReplicas) })
		waited := min(j.Progress().Elapsed(), j.Progress().StalledFor())
		b.reportBlocked(ctx, j, d, waited)
		if err := serving.CheckPodsAllowed(d, waited, deadline, j.Now()); err != nil {
			return next, err
		}
		if j.Overdue() {
			return next, j.stuckError(ctx, d, fmt.Sprintf("%s after %d s", why, j.req.DeadlineSeconds))
		}
	}
	return next, nil
}

// reportBlocked counts once that the Deployment's pods are not created.
func (b *applyLoop) reportBlocked(ctx context.Context, j *job, d *appsv1.Deployment, waited time.Duration) {
	f := serving.CreationFailure(d)
	if f.Reported() && waited >= workload.ReportAfter && !j.Progress().Blocked {
		j.Note(func(p *workload.Progress) { p.Blocked = true })
		attempt.CountBlocked(ctx, workload.ParseHolder(j.req.Claim).WorkflowID, f.String())
	}
}

// deployment returns the Deployment after writing it, or its current state if it was written before.
func (b *applyLoop) deployment(ctx context.Context, j *job) (*appsv1.Deployment, error) {
	if b.written {
		return b.read(ctx, j)
	}
	if !b.begun {
		b.begun = true
		if d := j.alreadyApplied(); d != nil {
			b.written = true
			return d, nil
		}
	}
	objects, w := b.ready.objects, &writer{a: j.a, req: j.req, readAt: b.ready.readAt, found: b.ready.found}
	b.ready = prepared{} // after any error everything is read again
	if objects.Deployment == nil {
		var err error
		if objects, err = j.a.render(ctx, j.req); err != nil {
			return nil, err
		}
	}
	d, err := w.writeAll(ctx, objects)
	if err != nil {
		return nil, err
	}
	b.written, b.objects, b.last, b.at = true, objects, d, time.Now()
	return d, nil
}

// alreadyApplied returns the Deployment if the watch shows that a previous attempt has written it in this very step,
// and therefore all other objects, since it is written last; else nil.
func (j *job) alreadyApplied() *appsv1.Deployment {
	d, live := j.a.watch.deployment(name{j.req.Domain, j.req.Deployment})
	if !live || d == nil || d.DeletionTimestamp != nil || d.Annotations[workload.AnnotationClaimedBy] != j.req.Claim ||
		d.Annotations[serving.AnnotationVersion] != j.req.Version || serving.TokenOf(d) != j.req.Token() {
		return nil
	}
	if intact, err := j.a.watch.digests.intact(d); err != nil || !intact {
		return nil
	}
	return d
}

// watchGrace is how long the watch may lag behind a write before the API server is queried.
const watchGrace = 5 * time.Second

// read returns the Deployment from the watch, or from the API server while the watch is unreliable; nil if it was
// deleted. As long as the watch lags behind the write, it returns what was written, without a query.
func (b *applyLoop) read(ctx context.Context, j *job) (*appsv1.Deployment, error) {
	of := name{j.req.Domain, j.req.Deployment}
	d, live := j.a.watch.deployment(of)
	switch {
	case live && d != nil && d.Annotations[workload.AnnotationClaimedBy] == j.req.Claim:
		return d, nil
	case live && b.last != nil && time.Since(b.at) < watchGrace:
		return b.last, nil
	}
	return j.a.deployment(ctx, of)
}

// stuckError returns the failure of a Deployment that does not become complete, with the reason of its pods.
func (j *job) stuckError(ctx context.Context, d *appsv1.Deployment, why string) error {
	if reason, message, err := j.a.podTrouble(ctx, d); err == nil && reason != "" {
		why += ": " + strings.TrimSuffix(reason+": "+message, ": ")
	}
	return failure.New(failure.WorkloadFailed, "Deployment %s/%s: %s", j.req.Domain, j.req.Deployment, why)
}

// finish deletes the additional objects of an earlier version, and releases the claim.
func (b *applyLoop) finish(ctx context.Context, j *job, d *appsv1.Deployment) (err error) {
	if b.objects.Deployment == nil {
		if b.objects, err = j.a.render(ctx, j.req); err != nil {
			return err
		}
	}
	if err := j.a.prune(ctx, j.req, b.objects); err != nil {
		return err
	}
	b.seen = j.a.watch.completeSnapshot(d)
	if d.Annotations[workload.AnnotationClaimedBy] != j.req.Claim {
		return nil
	}
	return j.releaseClaim(ctx)
}

// releaseClaim releases the claim on the Deployment, unless it is not the operation's any more.
func (j *job) releaseClaim(ctx context.Context) error {
	held := jsonpatch.Annotation(workload.AnnotationClaimedBy)
	patch := jsonpatch.Encode([]jsonpatch.Op{jsonpatch.Test(held, j.req.Claim), jsonpatch.Remove(held),
		jsonpatch.Remove(jsonpatch.Label(workload.LabelClaimed))})
	err := failpoint.Around("serving.Deployment.free", func() error {
		_, err := j.a.client.AppsV1().Deployments(j.req.Domain).Patch(ctx, j.req.Deployment, types.JSONPatchType, patch,
			metav1.PatchOptions{FieldManager: serving.FieldManager})
		return err
	})
	if err != nil && (apierrors.IsNotFound(err) || apierrors.IsInvalid(err)) {
		return nil // the claim is not this operation's any more
	}
	return err
}

// frozenAfter is the time without a heartbeat after which an attempt considers itself dead, as Temporal does (the
// heartbeat timeout of the workflows): another attempt or operation may have continued, and if the Deployment was
// deleted since, no fencing token reveals that.
const frozenAfter = 10 * time.Second

type job struct {
	*attempt.Attempt
	a   *Activities
	req serving.PartyRequest
	// begun is true when the job continues work that was begun in this activity.
	begun bool
	// round reads the state once and does the next thing.
	round func(ctx context.Context, j *job) (attempt.Next, error)
	// giveUp, if set, cleans up after a failure that is not retried automatically.
	giveUp func(ctx context.Context, j *job)
}

// run executes one attempt of a job.
func (a *Activities) run(ctx context.Context, j *job) error {
	if err := a.check(j.req); err != nil {
		return attempt.ApplicationError(err)
	}
	j.a = a
	j.Attempt = attempt.Start(ctx, attempt.Options{ListenFor: a.options.ListenFor, Slots: a.turns, Now: a.options.Now,
		StalledAfter: frozenAfter, InProgress: j.begun},
		attempt.Terms{
			Subject: "Deployment " + j.req.Domain + "/" + j.req.Deployment, DeadlineSeconds: j.req.DeadlineSeconds,
			SpentSeconds: j.req.SpentSeconds, UnreachableBudgetSeconds: j.req.UnreachableBudgetSeconds,
			KnownFailure: j.req.KnownFailure, KnownFailureRetry: serving.PersistentRetryInterval,
		})
	return j.Run(ctx, j)
}

// Reconcile executes one round. Retryable failures are retried until the deadline.
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

// Missing returns the failure of a namespace that does not exist.
func (j *job) Missing(err error) error {
	return failure.New(failure.Refused, "namespace %s of party %s does not take it: %s", j.req.Domain, j.req.Domain,
		kube.Text(err))
}

// Failed cleans up after a final failure, unless the claim belongs to a later step.
func (j *job) Failed(ctx context.Context, f *failure.Error) *failure.Error {
	if j.giveUp != nil && f.Kind != failure.ClaimLost {
		j.giveUp(ctx, j)
	}
	return f
}
