package centre

import (
	"context"
	"time"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/store"
)

// mostPublished is how many Rollouts are remembered, at some 10 KB each.
const mostPublished = 500

// PublishRollout writes what a release is like to the Rollout object that asked for it, where kruise.MayWrite lets it.
func (a *Activities) PublishRollout(ctx context.Context, in rollout.PublishRequest) (result rollout.PublishResult, err error) {
	err = untilNoConflict(store.RolloutObject(in.Object.Namespace, in.Object.Name), func() error {
		if last, known := a.published.take(in.Object.UID); known && kruise.MayWrite(in.View, last.Status) {
			if status := kruise.Showing(in.View, last, time.Now()); !kruise.Same(status, last.Status) {
				return a.publish(ctx, last, status)
			}
		}
		result, err = a.publishOnto(ctx, in)
		return err
	})
	return result, attempt.RetriedError(failure.Ignore(err, failure.NotFound))
}

// publishOnto writes onto the object as it is stored.
func (a *Activities) publishOnto(ctx context.Context, in rollout.PublishRequest) (result rollout.PublishResult, err error) {
	stored, err := a.store.GetRollout(ctx, in.Object.Namespace, in.Object.Name)
	switch {
	case failure.Is(err, failure.NotFound), err == nil && string(stored.UID) != in.Object.UID:
		return rollout.PublishResult{Gone: true}, nil
	case err != nil:
		return result, err
	case !kruise.MayWrite(in.View, stored.Status):
		return rollout.PublishResult{Pending: true}, nil
	}
	status := kruise.Showing(in.View, stored, time.Now())
	if kruise.Same(status, stored.Status) {
		return result, nil
	}
	return result, a.publish(ctx, stored, status)
}

func (a *Activities) publish(ctx context.Context, read *v1beta1.Rollout, status v1beta1.RolloutStatus) error {
	failpoint.Hit("rollout.publish.before")
	now, err := a.store.SetRolloutStatus(ctx, read, status)
	if err != nil {
		return err
	}
	failpoint.Hit("rollout.publish.after")
	a.published.keep(string(now.UID), now)
	return nil
}
