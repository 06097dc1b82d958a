package home

import (
	"context"
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"slipway.io/slipway/activities/outcome"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
)

// ClaimHolder says whether the workflow that holds a workload is dead: closed, forgotten, or of an interrupted task of the same plan
// that the asking task has replaced. Only then may its claim be taken over (design §4).
func (a *Activities) ClaimHolder(ctx context.Context, in operation.ClaimHolderRequest) (operation.ClaimHolderResult, error) {
	holder := operation.ParseHolder(in.Claim)
	described, err := a.temporal.DescribeWorkflowExecution(ctx, holder.WorkflowID, holder.RunID)
	var missing *serviceerror.NotFound
	var malformed *serviceerror.InvalidArgument
	switch {
	case errors.As(err, &missing), errors.As(err, &malformed):
		return operation.ClaimHolderResult{Dead: true, Reason: fmt.Sprintf("workflow %s is not known any more", holder.WorkflowID)}, nil
	case err != nil:
		return operation.ClaimHolderResult{}, err
	case status(described) != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
		return operation.ClaimHolderResult{Dead: true, Reason: fmt.Sprintf("workflow %s is closed", holder.WorkflowID)}, nil
	}
	return a.replaced(ctx, holder, in)
}

// replaced looks at a holder that is open: an interrupted task of the same plan has been replaced by the task that asks.
func (a *Activities) replaced(ctx context.Context, holder operation.Holder, in operation.ClaimHolderRequest) (operation.ClaimHolderResult, error) {
	alive := operation.ClaimHolderResult{Reason: fmt.Sprintf("workflow %s is still at work on it: wait for it, or stop it", holder.WorkflowID)}
	other, ok := plan.TaskOfWorkflow(holder.WorkflowID)
	if !ok || other == in.Task {
		return alive, nil
	}
	otherPlan, err := a.store.PlanOfTask(ctx, other)
	if err != nil {
		return operation.ClaimHolderResult{}, outcome.WrapPatiently(err)
	}
	live, err := a.store.LiveTask(ctx, in.Plan)
	if err != nil {
		return operation.ClaimHolderResult{}, outcome.WrapPatiently(err)
	}
	if otherPlan != in.Plan || live.Task != in.Task {
		return alive, nil
	}
	described, err := a.temporal.DescribeWorkflowExecution(ctx, plan.WorkflowID(other), "")
	var missing *serviceerror.NotFound
	if err != nil && !errors.As(err, &missing) {
		return operation.ClaimHolderResult{}, err
	}
	if err == nil && status(described) == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING && taskState(described) != string(plan.TaskInterrupted) {
		return alive, nil
	}
	return operation.ClaimHolderResult{Dead: true, Reason: fmt.Sprintf("task %s is interrupted and task %s has taken its place", other, in.Task)}, nil
}

func status(d *workflowservice.DescribeWorkflowExecutionResponse) enumspb.WorkflowExecutionStatus {
	return d.GetWorkflowExecutionInfo().GetStatus()
}

// taskState reads the state that the task's workflow last published.
func taskState(d *workflowservice.DescribeWorkflowExecutionResponse) string {
	var state string
	payload, ok := d.GetWorkflowExecutionInfo().GetSearchAttributes().GetIndexedFields()[operation.SearchAttributeState]
	if !ok || converter.GetDefaultDataConverter().FromPayload(payload, &state) != nil {
		return ""
	}
	return state
}
