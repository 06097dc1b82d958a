package api

import (
	"context"
	"time"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
)

const (
	// startWindow is how long a task may be accepted, and its plan claimed, before its workflow runs. Whoever executes a plan is given up
	// well before (executeTimeout), so that a task without a workflow after this time was never started.
	startWindow = 60 * time.Second
	// closeWait is how long a task that is over in all but name may take to write its record and close.
	closeWait = 5 * time.Second
)

// live is the task of a plan that is not over.
type live struct {
	id    string
	state plan.TaskState
	// starting says that the task was accepted just now and its workflow does not run yet.
	starting bool
}

// liveTask is the task of the plan that is not over, nil when there is none (design §5, "one live task per plan"). It looks the
// workflow up by its ID: lists lag behind.
func (h *handlers) liveTask(ctx context.Context, of *v1alpha1.DeployPlan) (*live, error) {
	id := of.Status.Task
	if id == "" {
		return nil, nil
	}
	described, err := h.describe(ctx, plan.WorkflowID(id))
	if err != nil {
		return nil, err
	}
	switch {
	case described == nil:
		return h.startingTask(ctx, of)
	case !isOpen(described):
		return nil, nil
	}
	state := publishedState(described.GetWorkflowExecutionInfo())
	if state.Final() && h.closesSoon(ctx, id) {
		return nil, nil
	}
	return &live{id: id, state: state}, nil
}

// startingTask is the task that has claimed the plan and has no workflow: it is being started, or it is over and forgotten, or whoever
// started it died.
func (h *handlers) startingTask(ctx context.Context, of *v1alpha1.DeployPlan) (*live, error) {
	claimed := of.Status.TaskClaimedAt
	if claimed == nil || time.Since(claimed.Time) > startWindow {
		return nil, nil
	}
	record, err := h.Home.GetRecord(ctx, of.Status.Task)
	if isFailure(err, failure.NotFound) {
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

// closesSoon waits for a task in a final state to close: it only writes its record, unless services beside a failed one still run.
func (h *handlers) closesSoon(ctx context.Context, id string) bool {
	wait, cancel := context.WithTimeout(ctx, closeWait)
	defer cancel()
	_ = h.Temporal.GetWorkflow(wait, plan.WorkflowID(id), "").Get(wait, nil) // how it ended is not asked here
	described, err := h.describe(ctx, plan.WorkflowID(id))
	return err == nil && (described == nil || !isOpen(described))
}
