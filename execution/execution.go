// Package execution reads what Temporal's server stores about a workflow, without asking its worker.
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

// Describer is the part of a Temporal client that is used here.
type Describer interface {
	DescribeWorkflowExecution(ctx context.Context, workflowID,
		runID string) (*workflowservice.DescribeWorkflowExecutionResponse, error)
}

// Describe describes a run of a workflow, or its newest run if runID is empty; nil if Temporal does not have it.
func Describe(ctx context.Context, from Describer, workflowID,
	runID string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	described, err := from.DescribeWorkflowExecution(ctx, workflowID, runID)
	if _, ok := errors.AsType[*serviceerror.NotFound](err); ok {
		return nil, nil
	}
	return described, err
}

// IsOpen reports whether a workflow is running. One that Temporal does not have (nil) is not.
func IsOpen(described *workflowservice.DescribeWorkflowExecutionResponse) bool {
	return described.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
}

// HasRun reports whether runID is the described run or the first run of its continue-as-new chain; an empty runID means
// any. Only one workflow per ID runs at a time, and references may contain either run ID.
func HasRun(described *workflowservice.DescribeWorkflowExecutionResponse, runID string) bool {
	info := described.GetWorkflowExecutionInfo()
	return runID == "" || runID == info.GetExecution().GetRunId() || runID == info.GetFirstRunId()
}

// OfRun describes the workflow that started with runID: its newest run if that is the newest workflow of the ID,
// otherwise that run itself; nil if Temporal has neither.
func OfRun(ctx context.Context, from Describer, workflowID,
	runID string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	newest, err := Describe(ctx, from, workflowID, "")
	if err != nil || newest == nil || HasRun(newest, runID) {
		return newest, err
	}
	return Describe(ctx, from, workflowID, runID)
}

// Published returns a search attribute that a workflow has set; otherwise the zero value.
func Published[T any](info *workflowpb.WorkflowExecutionInfo, attribute string) T {
	var value, zero T
	payload, ok := info.GetSearchAttributes().GetIndexedFields()[attribute]
	if !ok || converter.GetDefaultDataConverter().FromPayload(payload, &value) != nil {
		return zero
	}
	return value
}
