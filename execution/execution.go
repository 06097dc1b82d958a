// Package execution is what Temporal knows of a workflow without asking its worker.
package execution

import (
	"context"
	"errors"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
)

// describer is what of a Temporal client is used here.
type describer interface {
	DescribeWorkflowExecution(ctx context.Context, workflowID, runID string) (*workflowservice.DescribeWorkflowExecutionResponse, error)
}

// Describe is what Temporal knows of a run of a workflow, without a runID of its newest; nil when it knows no such workflow.
func Describe(ctx context.Context, from describer, workflowID, runID string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	described, err := from.DescribeWorkflowExecution(ctx, workflowID, runID)
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		return nil, nil
	}
	return described, err
}

// IsOpen says whether a workflow still runs. One that Temporal does not know (nil) does not.
func IsOpen(described *workflowservice.DescribeWorkflowExecutionResponse) bool {
	return described.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
}

// HasRun says whether a run is the one described, or the one with which it began before it was continued as new. One workflow of an ID runs
// at a time, and what names a run may have been written under either. No runID means any.
func HasRun(described *workflowservice.DescribeWorkflowExecutionResponse, runID string) bool {
	info := described.GetWorkflowExecutionInfo()
	return runID == "" || runID == info.GetExecution().GetRunId() || runID == info.GetFirstRunId()
}

// OfRun is what Temporal knows of the workflow that began with a run: of its newest run where that is the newest workflow of the ID, else of
// that run itself; nil when it knows neither.
func OfRun(ctx context.Context, from describer, workflowID, runID string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	newest, err := Describe(ctx, from, workflowID, "")
	if err != nil || newest == nil || HasRun(newest, runID) {
		return newest, err
	}
	return Describe(ctx, from, workflowID, runID)
}

// Published reads a search attribute that a workflow has published; the zero value until it has.
func Published[T any](info *workflowpb.WorkflowExecutionInfo, attribute string) T {
	var value, zero T
	payload, ok := info.GetSearchAttributes().GetIndexedFields()[attribute]
	if !ok || converter.GetDefaultDataConverter().FromPayload(payload, &value) != nil {
		return zero
	}
	return value
}
