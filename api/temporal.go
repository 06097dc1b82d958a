package api

import (
	"context"
	"errors"
	"net/url"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/workflows"
)

// describe is what Temporal knows of the newest run of a workflow without asking its worker; nil when it knows no such workflow.
func (h *handlers) describe(ctx context.Context, workflowID string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	ctx, cancel := briefly(ctx)
	defer cancel()
	described, err := h.Temporal.DescribeWorkflowExecution(ctx, workflowID, "")
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		return nil, nil
	}
	return described, err
}

// isOpen says whether the workflow still runs.
func isOpen(described *workflowservice.DescribeWorkflowExecutionResponse) bool {
	return described.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
}

// publishedState is the state that a task's workflow last published; Pending until it has published one.
func publishedState(info *workflowpb.WorkflowExecutionInfo) plan.TaskState {
	var state string
	payload, ok := info.GetSearchAttributes().GetIndexedFields()[workflows.AttributeState.GetName()]
	if !ok || converter.GetDefaultDataConverter().FromPayload(payload, &state) != nil || state == "" {
		return plan.TaskPending
	}
	return plan.TaskState(state)
}

// query asks the newest run of a workflow for its state. A workflow whose worker does not answer in time is an error.
func (h *handlers) query(ctx context.Context, workflowID string, into any) error {
	ctx, cancel := briefly(ctx)
	defer cancel()
	value, err := h.Temporal.QueryWorkflow(ctx, workflowID, "", workflows.QueryState)
	if err != nil {
		return err
	}
	return value.Get(into)
}

// workflowURL is the page of a run in the Temporal UI; "" when there is none.
func (h *handlers) workflowURL(workflowID, runID string) string {
	if h.TemporalUI == "" {
		return ""
	}
	address := strings.TrimSuffix(h.TemporalUI, "/") + "/namespaces/" + url.PathEscape(h.Namespace) + "/workflows/" + url.PathEscape(workflowID)
	if runID == "" {
		return address
	}
	return address + "/" + url.PathEscape(runID) + "/history"
}

func (h *handlers) workflowRef(workflowID, runID string) *plan.WorkflowRef {
	return &plan.WorkflowRef{ID: workflowID, RunID: runID, URL: h.workflowURL(workflowID, runID)}
}
