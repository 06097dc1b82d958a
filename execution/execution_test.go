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

func (a answer) DescribeWorkflowExecution(context.Context, string, string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return a.described, a.err
}

func described(status enumspb.WorkflowExecutionStatus) *workflowservice.DescribeWorkflowExecutionResponse {
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
		Status: status, Execution: &commonpb.WorkflowExecution{RunId: "third"}, FirstRunId: "first"}}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	away := errors.New("connection refused")
	cases := map[string]struct {
		reason string
		answer answer
		open   bool
		err    error
	}{
		"running":   {"a workflow that runs is open", answer{described: described(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING)}, true, nil},
		"completed": {"one that has ended is not", answer{described: described(enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED)}, false, nil},
		"unknown":   {"what Temporal does not know is not open, and that is no error", answer{err: serviceerror.NewNotFound("workflow not found")}, false, nil},
		"away":      {"no answer must not be taken for a workflow that is over", answer{err: away}, false, away},
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
	require.True(t, execution.HasRun(run, ""), "whoever names no run means any")
	require.True(t, execution.HasRun(run, "third"), "the present run")
	require.True(t, execution.HasRun(run, "first"), "the run with which it began: claims keep it across a continue-as-new")
	require.False(t, execution.HasRun(run, "other"), "a run of a former workflow of the ID")
}

// runs answers by the run that is asked for; "" is the newest.
type runs map[string]answer

func (r runs) DescribeWorkflowExecution(_ context.Context, _, runID string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	if a, known := r[runID]; known {
		return a.described, a.err
	}
	return nil, serviceerror.NewNotFound("workflow not found")
}

func TestOfRun(t *testing.T) {
	t.Parallel()
	newest, former := described(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING), described(enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED)
	away := errors.New("connection refused")
	for reason, tc := range map[string]struct {
		known runs
		runID string
		found *workflowservice.DescribeWorkflowExecutionResponse
		err   error
	}{
		"a workflow that was continued as new is still the one that began with its first run": {runs{"": {described: newest}}, "first", newest, nil},
		"its newest run is it too":                   {runs{"": {described: newest}}, "third", newest, nil},
		"a later workflow of the ID is another one":  {runs{"": {described: newest}, "old": {described: former}}, "old", former, nil},
		"one that is forgotten is not the later one": {runs{"": {described: newest}}, "old", nil, nil},
		"no answer is no knowledge":                  {runs{"": {err: away}}, "first", nil, away},
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
	info := &workflowpb.WorkflowExecutionInfo{SearchAttributes: &commonpb.SearchAttributes{IndexedFields: map[string]*commonpb.Payload{"State": payload}}}
	require.Equal(t, "Paused", execution.Published[string](info, "State"))
	require.Empty(t, execution.Published[string](info, "Other"), "one that was never published is empty")
	require.Zero(t, execution.Published[int](info, "State"), "one of another type reads as none")
}
