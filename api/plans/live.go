package plans

import (
	"context"
	"time"

	"slipway.io/slipway/api/start"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
)

// live is the task of a plan that is not over.
type live struct {
	id    string
	state plan.TaskState
	// starting says that the task was accepted just now and its workflow does not run yet.
	starting bool
}

// liveTask is the task of the plan that is not over, nil when there is none. It looks the
// workflow up by its ID: lists lag behind.
func (h *Handlers) liveTask(ctx context.Context, of *v1alpha1.DeployPlan) (*live, error) {
	id := of.Status.Task
	if id == "" {
		return nil, nil
	}
	described, err := h.Describe(ctx, plan.WorkflowID(id))
	if err != nil {
		return nil, err
	}
	switch {
	case described == nil:
		return h.startingTask(ctx, of)
	case !execution.IsOpen(described):
		return nil, nil
	}
	state := publishedState(described.GetWorkflowExecutionInfo())
	if state.Final() && h.ClosesSoon(ctx, plan.WorkflowID(id)) {
		return nil, nil
	}
	return &live{id: id, state: state}, nil
}

// startingTask is the task that has claimed the plan and has no workflow: it is being started, or it is over and forgotten, or whoever
// started it died.
func (h *Handlers) startingTask(ctx context.Context, of *v1alpha1.DeployPlan) (*live, error) {
	claimed := of.Status.TaskClaimedAt
	if claimed == nil || time.Since(claimed.Time) > start.Window {
		return nil, nil
	}
	record, err := h.Home.GetRecord(ctx, of.Status.Task)
	if failure.Is(err, failure.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if record.Outcome != nil {
		return nil, nil
	}
	return &live{id: of.Status.Task, state: plan.TaskPending, starting: true}, nil
}
