package centre

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/window"
)

// LoadItem reads one item of a task from the task's record: the catalogue as of the execution of the plan.
func (a *Activities) LoadItem(ctx context.Context, in operation.LoadItemRequest) (operation.LoadItemResult, error) {
	var result operation.LoadItemResult
	snap, item, err := a.item(ctx, in.Task, in.Item)
	if err != nil {
		return result, attempt.RetriedError(err)
	}
	if snap.RollsOut(in.Item - 1) {
		read, wrong := strategy.ReadService(snap.Services[item.ServiceID])
		if len(wrong) > 0 {
			return result, attempt.ApplicationError(
				failure.New(failure.Refused, "the strategy of service %s cannot be carried out: %s", item.ServiceID,
					wrong))
		}
		result.RollOut = read
	}
	for _, request := range operation.Requests(snap, in.Item-1) {
		result.Workloads = append(result.Workloads,
			operation.WorkloadOrder{Queue: snap.Queues[request.Workload.PartyOrDefault()], Request: request})
	}
	if len(result.Workloads) == 0 {
		return result, attempt.ApplicationError(failure.New(failure.NotFound,
			"service %s has no workload that deployLabel %q selects", item.ServiceID, item.DeployLabel))
	}
	return result, nil
}

// PackageURL returns the complete URL of the package that an item of a task deploys. Its query stays out of histories.
func (a *Activities) PackageURL(ctx context.Context, task string, item int) (string, error) {
	_, found, err := a.item(ctx, task, item)
	return found.HTTPSrcURI, err
}

// item reads what a task executes, and one item of it.
func (a *Activities) item(ctx context.Context, task string, item int) (plan.Snapshot, plan.Item, error) {
	snap, err := a.snapshot(ctx, task)
	if err == nil && (item < 1 || item > len(snap.Document.Items)) {
		err = failure.New(failure.NotFound, "the record of task %s has no item %d", task, item)
	}
	if err != nil {
		return plan.Snapshot{}, plan.Item{}, err
	}
	return snap, snap.Document.Items[item-1], nil
}

// UnrecordedPackages returns those packages that no record of a task or rollout names: neither as the deployed package
// nor as the previous one, which the reverse of the task restores.
func (a *Activities) UnrecordedPackages(ctx context.Context, in source.Unreferenced) (source.Unreferenced, error) {
	recorded := sets.New[string]()
	for _, kind := range []string{v1alpha1.KindTask, v1alpha1.KindRollout} {
		records, err := a.store.FindRecords(ctx, map[string]string{v1alpha1.LabelKind: kind})
		if err != nil {
			return source.Unreferenced{}, attempt.RetriedError(err)
		}
		for _, record := range records {
			if record.Outcome != nil {
				recorded.Insert(record.Outcome.Packages...)
			}
		}
	}
	return source.Unreferenced{Next: in.Next, SHA256: slices.DeleteFunc(in.SHA256, recorded.Has)}, nil
}

// BeginTask reports whether a newer task of the same plan has replaced this one: a plan has one live task. If a resume
// and an execute happen at the same moment, one wins: both write the plan's status with the version that they read.
func (a *Activities) BeginTask(ctx context.Context, in operation.TaskRequest) (operation.BeginTaskResult, error) {
	live, version, err := a.store.LiveTask(ctx, in.Plan)
	if err != nil {
		return operation.BeginTaskResult{}, attempt.RetriedError(err)
	}
	if live != "" && live != in.Task {
		return operation.BeginTaskResult{Superseded: live}, nil
	}
	if in.Reclaim && live == in.Task {
		// an error means that another client wrote the plan: the next attempt reads it again
		err = failpoint.Around("plan.claim", func() error { return a.store.ClaimPlan(ctx, in.Plan, version, in.Task) })
	}
	return operation.BeginTaskResult{}, err
}

// CompleteRecord queries the task's own workflow for its final state and writes it into the record, so that it outlives
// Temporal's retention.
func (a *Activities) CompleteRecord(ctx context.Context, in operation.TaskRequest) error {
	task, err := stateOf[plan.Task](ctx, a, plan.WorkflowID(in.Task), in.RunID)
	if err != nil {
		return err
	}
	a.snapshots.Remove(in.Task)
	return attempt.RetriedError(failpoint.Around("record.complete", func() error {
		return a.store.CompleteTask(ctx, task, a.recordLimit)
	}))
}

// CompleteRollout writes a rollout's final status into the record, so that it outlives Temporal's retention. Without a
// status in the request it queries the rollout's workflow.
func (a *Activities) CompleteRollout(ctx context.Context, in rollout.CompleteRequest) error {
	if in.Status == nil {
		status, err := stateOf[rollout.Status](ctx, a, in.WorkflowID, in.RunID)
		if err != nil {
			return err
		}
		in.Status = &status
	}
	return attempt.RetriedError(failpoint.Around("rollout.record.complete", func() error {
		return a.store.CompleteRollout(ctx, in.Record, *in.Status, a.recordLimit)
	}))
}

// BuildTemplate returns the Job template of an order: the one in the task's record, or the catalogue's current one if
// the order has no task. Templates stay out of histories.
func (a *Activities) BuildTemplate(ctx context.Context, order build.Order) ([]byte, error) {
	service, err := a.serviceOf(ctx, order)
	if err != nil {
		return nil, err
	}
	if service.Build == nil {
		return nil, failure.New(failure.Refused, "service %s has no `build` in the catalogue", order.Service)
	}
	return service.Build.JobTemplate.Raw, nil
}

func (a *Activities) serviceOf(ctx context.Context, order build.Order) (catalog.Service, error) {
	if order.Task == "" {
		object, err := a.store.GetService(ctx, order.Service)
		if err != nil {
			return catalog.Service{}, err
		}
		return object.Spec, nil
	}
	snap, item, err := a.item(ctx, order.Task, order.Item)
	return snap.Services[item.ServiceID], err
}

// NextOpening reports whether the release windows allow a release to begin now, and otherwise when they do next.
func (a *Activities) NextOpening(_ context.Context, q window.Question) (window.Answer, error) {
	answer, err := window.NextOpening(q)
	if err != nil {
		return answer, attempt.ApplicationError(failure.New(failure.Refused,
			"the release windows cannot be evaluated: %s", err))
	}
	return answer, nil
}
