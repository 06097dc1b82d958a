package api

import (
	"context"
	"slices"
	"time"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
)

const (
	// adoptWindow is how long after its record was written a task without a workflow may still be started by a repeat of its request.
	// After that a missing workflow may as well be one that Temporal has forgotten, and must not run twice.
	adoptWindow = time.Hour
)

// lookUpKey finds the task that the key already stands for. done says that there is nothing left to do: x.id is that task. A task that was
// recorded but never started is taken on: whoever began it died in between.
func (x *execution) lookUpKey(ctx context.Context) (done bool, err error) {
	records, err := x.keyRecords(ctx, v1alpha1.KindTask, x.key)
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

// keyRecords are the records of a kind that an Idempotency-Key stands for, newest first: a key of a task means nothing to rollouts.
func (h *handlers) keyRecords(ctx context.Context, kind, key string) ([]v1alpha1.ReleaseRecord, error) {
	records, err := h.Home.FindRecords(ctx, map[string]string{v1alpha1.LabelIdempotencyKey: keyLabel(key)})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(records, func(record v1alpha1.ReleaseRecord) bool { return record.Spec.Kind != kind }), nil
}

// passDeleted takes the next ID while the key's own belongs to a task that was deleted: Temporal remembers that one's workflow for a minute
// or so, and would not start another under its ID.
func (x *execution) passDeleted(ctx context.Context) error {
	for {
		described, err := x.describe(ctx, plan.WorkflowID(x.id))
		if err != nil || described == nil {
			return err
		}
		// A task's record is there before its workflow: with one, it is a twin of this request that was faster.
		_, err = x.Home.GetRecord(ctx, x.id)
		if err == nil {
			return errAgain
		}
		if !isFailure(err, failure.NotFound) {
			return err
		}
		x.id = keyedTaskID(x.plan, x.key, x.id)
	}
}

// repeat answers a request whose key has a task.
func (x *execution) repeat(ctx context.Context, record v1alpha1.ReleaseRecord) (done bool, err error) {
	if record.Spec.Subject != x.plan || record.Spec.RequestDigest != x.requestDigest() {
		return false, kindConflict.because("the Idempotency-Key was used for another request: task %s of plan %s; take a new key",
			x.id, record.Spec.Subject).about(x.id, nil)
	}
	if record.Outcome != nil {
		return true, nil
	}
	described, err := x.describe(ctx, record.Spec.WorkflowID)
	if err != nil {
		return false, err
	}
	age := time.Since(record.Spec.CreatedAt.Time)
	if described != nil || age > adoptWindow {
		return true, nil
	}
	return x.adopt(ctx, age)
}

// adopt takes on a task that was recorded but has no workflow. If it has not even claimed its plan within the time that takes, its snapshot is
// old: it makes way for a new one.
func (x *execution) adopt(ctx context.Context, age time.Duration) (done bool, err error) {
	record, err := x.Home.GetRecord(ctx, x.id)
	if isFailure(err, failure.NotFound) {
		return false, nil // its twin has withdrawn it; x.id is the key's all the same
	}
	if err != nil {
		return false, err
	}
	object, err := x.handlers.plan(ctx, x.plan)
	if err != nil {
		return false, err
	}
	x.record, x.adopted = record, true
	if object.Status.Task != x.id && age > startWindow {
		x.withdraw(ctx)
		return false, nil
	}
	if err := v1alpha1.DecodeBody(record.Spec.Snapshot, &x.snapshot); err != nil {
		return false, err
	}
	return false, nil
}
