package workload

import (
	"context"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workloadops"
)

// restoreJob gives back what an unfinished operation borrowed.
type restoreJob struct {
	*operationJob
	result workloadops.Result
	// persist has every failure tried again by the server: the workflow knows of it already.
	persist bool
}

// Restore gives back what an unfinished Run borrowed, and releases its claim; a workload that the request does not hold is left alone. It
// has no deadline and no budget: while the cluster is out of reach it fails with NotReady, to be tried again for as long as it takes, since
// no workflow closes while it owes this.
//
// Told to persist, it fails with NotReady whatever keeps it.
func (a *Activities) Restore(ctx context.Context, req workloadops.RestoreRequest) (workloadops.Result, error) {
	job := &restoreJob{operationJob: a.operationJob(ctx, req.Request, attempt.Terms{Subject: req.Workload.String()}), persist: req.Persist}
	if f := a.check(req.Request); f != nil {
		return workloadops.Result{}, attempt.ApplicationError(job.Failed(ctx, f))
	}
	if err := job.Run(ctx, job); err != nil {
		return workloadops.Result{}, err
	}
	return job.result, nil
}

// Reconcile looks once and gives back.
func (t *restoreJob) Reconcile(ctx context.Context) (attempt.Next, error) {
	next, err := t.giveBack(ctx)
	if err == nil {
		return next, nil
	}
	switch kube.Classify(err) {
	case kube.Missing:
		t.result.Message = "nothing to give back: the workload is gone"
		return attempt.Next{Action: attempt.Done}, nil
	case kube.Refused:
		err = failure.New(failure.Refused,
			"%s: its cluster does not let its settings be given back: %s. It is tried again until it does: put right what refuses it",
			t.req.Workload, kube.Text(err))
	}
	return attempt.Next{}, err
}

func (t *restoreJob) giveBack(ctx context.Context) (attempt.Next, error) {
	o, err := t.read(ctx)
	if err != nil {
		return attempt.Next{}, err
	}
	d := workloadops.Restore(t.req, o.seen)
	if d.Action == workloadops.ActWrite {
		_, err = t.patch(ctx, o, d.Write)
	}
	switch {
	case err == nil && d.Result != nil:
		t.result = *d.Result
		return attempt.Next{Action: attempt.Done}, nil
	case err != nil && kube.Classify(err) == kube.Rejected:
		t.rejected, t.rejectedError = o.GetResourceVersion(), err
		return attempt.Next{}, nil
	}
	return attempt.Next{}, err
}

// Failed leaves a failure as it is, since giving back is what has failed; one that the workflow knows of is left to the server.
func (t *restoreJob) Failed(_ context.Context, f *failure.Error) *failure.Error {
	if !t.persist || f.Kind.Retryable() {
		return f
	}
	return &failure.Error{Kind: failure.NotReady, Message: f.Message, RetryAfter: workloadops.RestoreAgain}
}
