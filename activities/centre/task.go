package centre

import (
	"context"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

// LoadItem reads one item of a task from the task's record: the catalogue as it was when the plan was executed.
func (a *Activities) LoadItem(ctx context.Context, in workloadops.LoadItemRequest) (workloadops.LoadItemResult, error) {
	snap, err := a.snapshot(ctx, in.Task)
	if err != nil {
		return workloadops.LoadItemResult{}, attempt.RetriedError(err)
	}
	if in.Item < 1 || in.Item > len(snap.Document.Items) {
		return workloadops.LoadItemResult{},
			attempt.ApplicationError(failure.New(failure.NotFound, "the record of task %s has no item %d", in.Task, in.Item))
	}
	item := snap.Document.Items[in.Item-1]
	service := snap.Services[item.ServiceID]
	var result workloadops.LoadItemResult
	for _, w := range snap.Selected(in.Item - 1) {
		result.Workloads = append(result.Workloads, workloadops.WorkloadOrder{
			Queue: snap.Queues[w.PartyOrDefault()],
			Request: workloadops.Request{Workload: w, Operation: item.Deployment, Method: item.MethodOrDefault(),
				DeadlineSeconds: service.Deadline(), UnreachableBudgetSeconds: snap.UnreachableBudgetSeconds},
		})
	}
	if len(result.Workloads) == 0 {
		return result, attempt.ApplicationError(failure.New(failure.NotFound, "service %s has no workload that deployLabel %q selects",
			item.ServiceID, item.DeployLabel))
	}
	return result, nil
}

// BeginTask says whether a newer task of the same plan has taken this one's place: a plan has one live task.
// Of a resume and an execute at the same moment one wins: both write the plan's status with the version that they read.
func (a *Activities) BeginTask(ctx context.Context, in workloadops.TaskRequest) (workloadops.BeginTaskResult, error) {
	live, err := a.store.LiveTask(ctx, in.Plan)
	if err != nil {
		return workloadops.BeginTaskResult{}, attempt.RetriedError(err)
	}
	if live.Task != "" && live.Task != in.Task {
		return workloadops.BeginTaskResult{Superseded: live.Task}, nil
	}
	if in.Reclaim && live.Task == in.Task {
		failpoint.Hit("plan.claim.before")
		if err := a.store.ClaimPlan(ctx, in.Plan, live.ResourceVersion, in.Task); err != nil {
			return workloadops.BeginTaskResult{}, err // somebody else wrote the plan: the next try looks again
		}
		failpoint.Hit("plan.claim.after")
	}
	return workloadops.BeginTaskResult{}, nil
}

// CompleteRecord asks the task's own workflow for its final state and writes it into the record, so that it outlives Temporal's
// retention.
func (a *Activities) CompleteRecord(ctx context.Context, in workloadops.TaskRequest) error {
	task, err := stateOf[plan.Task](ctx, a, plan.WorkflowID(in.Task), in.RunID)
	if err != nil {
		return err
	}
	failpoint.Hit("record.complete.before")
	if err := a.store.CompleteTask(ctx, task, a.recordLimit); err != nil {
		return attempt.RetriedError(err)
	}
	failpoint.Hit("record.complete.after")
	a.forget(in.Task)
	return nil
}

// CompleteRollout asks the rollout's own workflow for its final status and writes it into the record, so that it outlives Temporal's
// retention.
func (a *Activities) CompleteRollout(ctx context.Context, in rollout.CompleteRequest) error {
	status, err := stateOf[rollout.Status](ctx, a, in.WorkflowID, in.RunID)
	if err != nil {
		return err
	}
	failpoint.Hit("rollout.record.complete.before")
	if err := a.store.CompleteRollout(ctx, in.Record, status, a.recordLimit); err != nil {
		return attempt.RetriedError(err)
	}
	failpoint.Hit("rollout.record.complete.after")
	return nil
}
