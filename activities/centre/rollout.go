package centre

import (
	"context"
	"fmt"
	"time"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/release/digest"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/instant"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/store"
)

// RecordRollout writes the record of a task's rollout before the rollout's workflow starts. The record's name is
// derived from task, item and workload, so a repetition does not write it again.
func (a *Activities) RecordRollout(ctx context.Context, in rollout.RecordRequest) (rollout.Recorded, error) {
	record, err := a.recordRollout(ctx, in)
	if err != nil {
		return rollout.Recorded{}, attempt.RetriedError(err)
	}
	asked := store.RolloutAsked(record, in.Spec)
	return rollout.Recorded{Record: asked.Record, CreatedAt: asked.CreatedAt, Revision: asked.Revision,
		Actor: asked.Actor, Reason: asked.Reason, Via: asked.Via}, nil
}

func (a *Activities) recordRollout(ctx context.Context, in rollout.RecordRequest) (*v1alpha1.ReleaseRecord, error) {
	name := rolloutRecordName(in)
	record, err := a.store.GetRelease(ctx, name)
	if err == nil || !failure.Is(err, failure.NotFound) {
		return record, err
	}
	task, err := a.store.GetRecord(ctx, in.Task)
	if err != nil {
		return nil, err
	}
	earlier, err := a.store.FindRecords(ctx, store.RolloutLabels(in.Spec.Party, in.Spec.Namespace, in.Spec.Name))
	if err != nil {
		return nil, err
	}
	record, err = store.NewRolloutRecord(machine.Request{Spec: in.Spec, Revision: store.NextNumber(earlier),
		Task: in.Task})
	if err != nil {
		return nil, err
	}
	record.Name = name
	record.Labels[v1alpha1.LabelVia] = task.Labels[v1alpha1.LabelVia]
	record.Spec.CreatedAt = instant.MicroOf(time.Now().UTC().Truncate(time.Microsecond))
	record.Spec.Actor, record.Spec.Reason = task.Spec.Actor, task.Spec.Reason
	err = failpoint.Around("rollout.record.begin", func() error { return a.store.CreateRecord(ctx, record) })
	if failure.Is(err, failure.Conflict) { // an earlier attempt timed out, but has written it
		return a.store.GetRelease(ctx, name)
	}
	return record, err
}

// rolloutRecordName begins with the workload's name for readability.
func rolloutRecordName(in rollout.RecordRequest) string {
	const readable = 40
	spec := in.Spec
	name := spec.Name[:min(len(spec.Name), readable)]
	return v1alpha1.RecordName(v1alpha1.KindRollout, name+"-"+
		digest.Of(fmt.Sprintf("%s\n%d\n%s", in.Task, in.Item, spec.Workload().Identity()))[:16])
}

// LastHealthy reads which version the newest Healthy release of a name has left on its workload; nil if none is on
// record.
func (a *Activities) LastHealthy(ctx context.Context, of strategy.Spec) (*strategy.Revision, error) {
	left, err := a.store.LastHealthy(ctx, of)
	if err != nil {
		return nil, attempt.RetriedError(err)
	}
	return left, nil
}

// WithdrawRollout deletes the record of a rollout that was not started. The record of one that has ended stays.
func (a *Activities) WithdrawRollout(ctx context.Context, in rollout.WithdrawRequest) error {
	record, err := a.store.GetRelease(ctx, in.Record)
	if err == nil && record.Outcome == nil {
		err = failpoint.Around("rollout.record.withdraw", func() error { return a.store.DeleteRelease(ctx, in.Record) })
	}
	return attempt.RetriedError(failure.Ignore(err, failure.NotFound))
}

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
