package centre

import (
	"context"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/release/failure"
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
