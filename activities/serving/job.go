package serving

import (
	"context"
	"errors"
	"time"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
)

// frozenFor is after how long without a sign of life an attempt takes itself for dead, as Temporal does (the heartbeat timeout of the
// workflows): another attempt, or another operation, has gone on, and where a Deployment was removed since nothing tells so.
const frozenFor = 10 * time.Second

// job is one activity of a party.
type job struct {
	*attempt.Attempt
	a   *Activities
	req serving.PartyRequest
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
	j.Attempt = attempt.Start(ctx, attempt.Options{ListenFor: a.options.ListenFor, Now: a.options.Now, FrozenAfter: frozenFor},
		attempt.Terms{
			Subject: "Deployment " + j.req.Domain + "/" + j.req.Deployment, DeadlineSeconds: j.req.DeadlineSeconds,
			UnreachableBudgetSeconds: j.req.UnreachableBudgetSeconds,
			KnownFailure:             j.req.KnownFailure, KnownFailureRetry: serving.OwedRetryInterval,
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
