package workload

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"

	"slipway.io/slipway/activities/outcome"
	"slipway.io/slipway/activities/trouble"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workloadops"
)

// Restore gives back what an unfinished Run borrowed, and releases its claim; a workload that the request does not hold is left alone. While the cluster is
// out of reach it fails with NotReady, to be tried again for as long as it takes (design §4: no workflow closes while it owes a restore).
func (a *Activities) Restore(ctx context.Context, req workloadops.Request) (workloadops.Result, error) {
	if f := a.check(req); f != nil {
		return workloadops.Result{}, outcome.Wrap(f)
	}
	// It has no deadline and no budget of its own.
	result, err := a.newAttempt(req, &beat{}).restore(ctx)
	return result, outcome.Wrap(err)
}

func (t *attempt) restore(ctx context.Context) (workloadops.Result, error) {
	for {
		result, err := t.tryRestore(ctx)
		if err == nil && result != nil {
			return *result, nil
		}
		if err == nil {
			continue
		}
		var f *failure.Error
		if errors.As(err, &f) {
			return workloadops.Result{}, f
		}
		now := t.a.options.Now()
		switch trouble.Sort(err) {
		case missing:
			return workloadops.Result{Message: "nothing to give back: the workload is gone"}, nil
		case refused:
			return workloadops.Result{}, failure.New(failure.Refused, "%s: its cluster does not let its settings be given back: %s. It is tried again until it does: put right what refuses it", t.req.Workload, text(err))
		case forbidden:
			if t.forbiddenSince.IsZero() {
				t.forbiddenSince = now
			}
			if now.Sub(t.forbiddenSince) >= permissionGrace {
				return workloadops.Result{}, forbiddenFailure(t.req, 0, err)
			}
		}
		if ctx.Err() != nil {
			return workloadops.Result{}, ctx.Err()
		}
		if !now.Before(t.until) && t.forbiddenSince.IsZero() {
			return workloadops.Result{}, t.restoreLater(ctx, err)
		}
		if err := t.pause(ctx, pauseBetweenTries); err != nil {
			return workloadops.Result{}, t.restoreLater(ctx, err)
		}
	}
}

// tryRestore looks once and gives back; nothing at all means that it has to look again.
func (t *attempt) tryRestore(ctx context.Context) (*workloadops.Result, error) {
	o, err := t.read(ctx)
	if err != nil {
		return nil, err
	}
	d := workloadops.Restore(t.req, o.seen)
	if d.Action != workloadops.ActWrite {
		return d.Result, nil
	}
	if _, err := t.patch(ctx, o, d.Write); err != nil {
		if trouble.Sort(err) == rejected {
			t.rejected, t.rejectedError = o.meta.ResourceVersion, err
			return nil, nil
		}
		return nil, err
	}
	return d.Result, nil
}

func (t *attempt) restoreLater(ctx context.Context, err error) error {
	attempts := int32(1)
	if activity.IsActivity(ctx) {
		attempts = activity.GetInfo(ctx).Attempt
	}
	after := min(retryShortest*time.Duration(min(attempts, 100)), retryLongest)
	return &failure.Error{Kind: failure.NotReady, RetryAfter: after,
		Message: t.req.Workload.String() + ": its settings cannot be given back while its cluster is out of reach: " + text(err)}
}
