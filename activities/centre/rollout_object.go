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

// maxPublished is how many Rollouts are cached, at some 10 KB each.
const maxPublished = 500

// PublishRollout writes the state of a release to its Rollout object, if kruise.MayWrite allows it.
func (a *Activities) PublishRollout(ctx context.Context, in rollout.PublishRequest) (result rollout.PublishResult,
	err error) {
	err = retryConflicts(store.RolloutObject(in.Object.Namespace, in.Object.Name), func() error {
		if last, known := a.published.take(in.Object.UID); known && kruise.MayWrite(in.View, last.Status) {
			if status := kruise.ReleaseStatus(in.View, last, time.Now()); !kruise.SameStatus(status, last.Status) {
				return a.publish(ctx, last, status)
			}
		}
		result, err = a.publishFresh(ctx, in)
		return err
	})
	return result, attempt.RetriedError(failure.Ignore(err, failure.NotFound))
}

// publishFresh reads the object and writes its status.
func (a *Activities) publishFresh(ctx context.Context, in rollout.PublishRequest) (result rollout.PublishResult,
	err error) {
	stored, err := a.store.GetRollout(ctx, in.Object.Namespace, in.Object.Name)
	switch {
	case failure.Is(err, failure.NotFound), err == nil && string(stored.UID) != in.Object.UID:
		return rollout.PublishResult{ObjectDeleted: true}, nil
	case err != nil:
		return result, err
	case !kruise.MayWrite(in.View, stored.Status):
		return rollout.PublishResult{Pending: true}, nil
	}
	status := kruise.ReleaseStatus(in.View, stored, time.Now())
	if kruise.SameStatus(status, stored.Status) {
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
