package centre

import (
	"context"
	"time"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/rollout"
)

// PublishRollout writes what a release is like to the Rollout object that asked for it. A command that a client has left there, and that the
// release has not heard, is not written over, unless the release is over: then nobody can hear it any more.
func (a *Activities) PublishRollout(ctx context.Context, in rollout.PublishRequest) (result rollout.PublishResult, err error) {
	object := in.Object
	err = untilNoConflict("Rollout "+object.Namespace+"/"+object.Name, func() error {
		result = rollout.PublishResult{}
		stored, err := a.store.GetRollout(ctx, object.Namespace, object.Name)
		if failure.Is(err, failure.NotFound) || err == nil && string(stored.UID) != object.UID {
			result.Gone = true
			return nil
		}
		if err != nil {
			return err
		}
		if in.View.Status.FinishedAt == nil && !kruise.MayWrite(stored.Status, in.View.Answered) {
			result.Pending = true
			return nil
		}
		status := kruise.Showing(in.View, stored, time.Now())
		if kruise.Same(status, stored.Status) {
			return nil
		}
		failpoint.Hit("rollout.publish.before")
		if err := a.store.SetRolloutStatus(ctx, stored, status); err != nil {
			return err
		}
		failpoint.Hit("rollout.publish.after")
		return nil
	})
	return result, attempt.RetriedError(failure.Ignore(err, failure.NotFound))
}
