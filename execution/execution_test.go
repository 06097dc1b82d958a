package execution_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"slipway.io/slipway/execution"
)

type answer struct {
	described *workflowservice.DescribeWorkflowExecutionResponse
	err       error
}

func (a answer) DescribeWorkflowExecution(context.Context, string,
	string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return a.described, a.err
}

func described(status enumspb.WorkflowExecutionStatus) *workflowservice.DescribeWorkflowExecutionResponse {
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
		Status: status, Execution: &commonpb.WorkflowExecution{RunId: "third"}, FirstRunId: "first"}}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	refused := errors.New("connection refused")
	cases := map[string]struct {
		reason string
		answer answer
		open   bool
		err    error
	}{
		"running": {"a running workflow is open",
			answer{described: described(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)}, true, nil},
		"completed": {"an ended workflow is not", answer{described: described(
			enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED)}, false, nil},
		"unknown": {"an unknown workflow is not open, which is not an error",
			answer{err: serviceerror.NewNotFound("workflow not found")}, false, nil},
		"refused": {"a failed call must not be taken for an ended workflow", answer{err: refused}, false, refused},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := execution.Describe(t.Context(), tc.answer, "task/a", "")
			require.Equal(t, tc.err, err, tc.reason)
			require.Equal(t, tc.open, execution.IsOpen(found), tc.reason)
		})
	}
}

func TestHasRun(t *testing.T) {
	t.Parallel()
	run := described(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)
	require.True(t, execution.HasRun(run, ""), "no run ID means any run")
	require.True(t, execution.HasRun(run, "third"), "the current run")
	require.True(t, execution.HasRun(run, "first"), "the first run: claims keep it across a continue-as-new")
	require.False(t, execution.HasRun(run, "other"), "a run of an earlier workflow with this ID")
}

// runs answers by run ID; "" is the newest run.
type runs map[string]answer

func (r runs) DescribeWorkflowExecution(_ context.Context, _,
	runID string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	if a, known := r[runID]; known {
		return a.described, a.err
	}
	return nil, serviceerror.NewNotFound("workflow not found")
}

func TestOfRun(t *testing.T) {
	t.Parallel()
	newest, former := described(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING),
		described(enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED)
	refused := errors.New("connection refused")
	for reason, tc := range map[string]struct {
		known runs
		runID string
		found *workflowservice.DescribeWorkflowExecutionResponse
		err   error
	}{
		"a workflow that continued as new is found by its first run": {runs{"": {described: newest}}, "first", newest,
			nil},
		"it is found by its newest run": {runs{"": {described: newest}}, "third", newest,
			nil},
		"a later workflow with the ID is a different one": {runs{"": {described: newest},
			"old": {described: former}}, "old", former, nil},
		"a deleted workflow is not replaced by a later one": {runs{"": {described: newest}}, "old", nil, nil},
		"a failed call returns its error":                   {runs{"": {err: refused}}, "first", nil, refused},
	} {
		found, err := execution.OfRun(t.Context(), tc.known, "serving/s1/3", tc.runID)
		require.Equal(t, tc.err, err, reason)
		require.Same(t, tc.found, found, reason)
	}
}

func TestPublished(t *testing.T) {
	t.Parallel()
	payload, err := converter.GetDefaultDataConverter().ToPayload("Paused")
	require.NoError(t, err)
	info := &workflowpb.WorkflowExecutionInfo{
		SearchAttributes: &commonpb.SearchAttributes{IndexedFields: map[string]*commonpb.Payload{"State": payload}}}
	require.Equal(t, "Paused", execution.Published[string](info, "State"))
	require.Empty(t, execution.Published[string](info, "Other"), "an attribute that was never set is empty")
	require.Zero(t, execution.Published[int](info, "State"), "an attribute of another type reads as unset")
}
