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
	"slipway.io/slipway/activities/failpoint"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workloadops"
)

// lookEvery is how often a waiting attempt looks at the clock, and at the Deployment while no watch can be relied on.
const lookEvery = time.Second

// Prepare says, without a write, whether the party can run a version. It fails with a failure.Kind as the error's type.
func (a *Activities) Prepare(ctx context.Context, req serving.PartyRequest) error {
	return a.run(ctx, &job{req: req, round: func(ctx context.Context, _ *job) (attempt.Next, error) {
		objects, err := a.render(ctx, req)
		if err != nil {
			return attempt.Next{}, err
		}
		_, err = (&writer{a: a, req: req, dry: true}).all(ctx, objects)
		var waits *failure.Error
		if errors.As(err, &waits) && waits.Kind == failure.NotReady {
			err = nil // a former serving will be gone when it is brought about
		}
		return attempt.Next{Action: attempt.Done}, err
	}})
}

// Apply brings the party to a version and waits until all its pods run it. It fails with a failure.Kind as the error's type; NotReady is to
// be tried again.
func (a *Activities) Apply(ctx context.Context, req serving.PartyRequest) error {
	wake, leave := a.watch.subscribe(name{req.Domain, req.Deployment})
	defer leave()
	b := &bringing{wake: wake}
	return a.run(ctx, &job{req: req, round: b.round, giveUp: func(ctx context.Context, j *job) {
		if err := j.free(ctx); err != nil { // the claim of an operation that is over may be taken over as it is
			a.options.Logger.Warn("a claim could not be given back", "deployment", req.Domain+"/"+req.Deployment, "error", err)
		}
	}})
}

// bringing brings a party to a version.
type bringing struct {
	wake <-chan struct{}
	// written says that all objects were written, objects what they are to be: from then on only the Deployment is looked at.
	written bool
	objects serving.Objects
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
		return attempt.Next{Action: attempt.Done}, j.finish(ctx, b.objects, d)
	case serving.DeployedNot:
		b.written = false // somebody has changed or deleted it since
	case serving.DeployedComing:
		next.Listen = func(context.Context) (<-chan struct{}, error) { return b.wake, nil }
		if j.Overdue() {
			return next, j.stuck(ctx, d, fmt.Sprintf("%s after %d s", why, j.req.DeadlineSeconds))
		}
	}
	return next, nil
}

// deployment is the Deployment as it was written, or as it has become since.
func (b *bringing) deployment(ctx context.Context, j *job) (*appsv1.Deployment, error) {
	if b.written {
		return j.read(ctx)
	}
	objects, err := j.a.render(ctx, j.req)
	if err != nil {
		return nil, err
	}
	d, err := (&writer{a: j.a, req: j.req}).all(ctx, objects)
	if err != nil {
		return nil, err
	}
	b.written, b.objects = true, objects
	return d, nil
}

// read is the Deployment as the watch has it, or as the API server has it while the watch cannot be relied on; nil when it is gone.
func (j *job) read(ctx context.Context) (*appsv1.Deployment, error) {
	if d, live := j.a.watch.deployment(name{j.req.Domain, j.req.Deployment}); live && d != nil &&
		d.Annotations[workloadops.AnnotationClaimedBy] == j.req.Claim {
		return d, nil
	}
	call, cancel := j.a.call(ctx)
	defer cancel()
	d, err := j.a.client.AppsV1().Deployments(j.req.Domain).Get(call, j.req.Deployment, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return d, err
}

// stuck is the failure of a Deployment that does not come up, with the word of its pods.
func (j *job) stuck(ctx context.Context, d *appsv1.Deployment, why string) error {
	if reason, message, err := j.a.podTrouble(ctx, d); err == nil && reason != "" {
		why += ": " + strings.TrimSuffix(reason+": "+message, ": ")
	}
	return failure.New(failure.WorkloadFailed, "Deployment %s/%s: %s", j.req.Domain, j.req.Deployment, why)
}

// finish removes what an earlier version had besides, and gives the Deployment free.
func (j *job) finish(ctx context.Context, objects serving.Objects, d *appsv1.Deployment) error {
	if err := j.a.prune(ctx, j.req, objects); err != nil {
		return err
	}
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
