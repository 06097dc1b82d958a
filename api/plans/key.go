package plans

import (
	"context"
	"time"

	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
)

// lookUpKey finds the task that the key already stands for. done says that there is nothing left to do: x.id is that task. A task that was
// recorded but never started is taken on: whoever began it died in between.
func (x *execution) lookUpKey(ctx context.Context) (done bool, err error) {
	records, err := start.KeyRecords(ctx, x.Backend, v1alpha1.KindTask, x.key)
	if err != nil {
		return false, err
	}
	after := ""
	if len(records) > 0 {
		newest := records[0]
		id, _ := plan.TaskOfWorkflow(newest.Spec.WorkflowID)
		if time.Since(newest.Spec.CreatedAt.Time) < v1alpha1.KeyLifetime {
			x.id = id
			return x.repeat(ctx, newest)
		}
		after = id
	}
	x.id = keyedTaskID(x.plan, x.key, after)
	return false, x.passDeleted(ctx)
}

// passDeleted takes the next ID while the key's own belongs to a task that was deleted: Temporal remembers that one's workflow for a minute
// or so, and would not start another under its ID.
func (x *execution) passDeleted(ctx context.Context) error {
	for {
		described, err := x.Describe(ctx, plan.WorkflowID(x.id))
		if err != nil || described == nil {
			return err
		}
		// A task's record is there before its workflow: with one, it is a twin of this request that was faster.
		_, err = x.Home.GetRecord(ctx, x.id)
		if err == nil {
			return errAgain
		}
		if !problem.IsFailure(err, failure.NotFound) {
			return err
		}
		x.id = keyedTaskID(x.plan, x.key, x.id)
	}
}

// repeat answers a request whose key has a task.
func (x *execution) repeat(ctx context.Context, record v1alpha1.ReleaseRecord) (done bool, err error) {
	if record.Spec.Subject != x.plan || record.Spec.RequestDigest != x.requestDigest() {
		return false, problem.Conflict.Because("the Idempotency-Key was used for another request: task %s of plan %s; take a new key",
			x.id, record.Spec.Subject).About(x.id, nil)
	}
	if record.Outcome != nil {
		return true, nil
	}
	described, err := x.Describe(ctx, record.Spec.WorkflowID)
	if err != nil {
		return false, err
	}
	age := time.Since(record.Spec.CreatedAt.Time)
	if described != nil || age > start.AdoptWindow {
		return true, nil
	}
	return x.adopt(ctx, age)
}

// adopt takes on a task that was recorded but has no workflow. If it has not even claimed its plan within the time that takes, its snapshot is
// old: it makes way for a new one.
func (x *execution) adopt(ctx context.Context, age time.Duration) (done bool, err error) {
	record, err := x.Home.GetRecord(ctx, x.id)
	if problem.IsFailure(err, failure.NotFound) {
		return false, nil // its twin has withdrawn it; x.id is the key's all the same
	}
	if err != nil {
		return false, err
	}
	object, err := x.Handlers.plan(ctx, x.plan)
	if err != nil {
		return false, err
	}
	x.record, x.adopted = record, true
	if object.Status.Task != x.id && age > start.Window {
		x.withdraw(ctx)
		return false, nil
	}
	if err := v1alpha1.DecodeBody(record.Spec.Snapshot, &x.snapshot); err != nil {
		return false, err
	}
	return false, nil
}
