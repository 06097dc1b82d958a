package execution

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

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// described answers by workflow and run; "" is the newest run.
type described map[[2]string]*workflowservice.DescribeWorkflowExecutionResponse

func (d described) DescribeWorkflowExecution(_ context.Context, workflowID,
	runID string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	switch workflowID {
	case "malformed":
		return nil, serviceerror.NewInvalidArgument("no workflow ID")
	case "silent":
		return nil, errors.New("connection refused")
	}
	if one := d[[2]string{workflowID, runID}]; one != nil {
		return one, nil
	}
	return nil, serviceerror.NewNotFound("workflow not found")
}

const (
	running    = enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	completed  = enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
	terminated = enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED
)

func run(t *testing.T, id, state string,
	status enumspb.WorkflowExecutionStatus) *workflowservice.DescribeWorkflowExecutionResponse {
	t.Helper()
	payload, err := converter.GetDefaultDataConverter().ToPayload(state)
	require.NoError(t, err)
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
		Status: status, Execution: &commonpb.WorkflowExecution{RunId: id}, FirstRunId: id,
		SearchAttributes: &commonpb.SearchAttributes{IndexedFields: map[string]*commonpb.Payload{
			workload.SearchAttributeState: payload}}}}
}

// restoreOnly makes a release one that deploys nothing.
func restoreOnly(
	d *workflowservice.DescribeWorkflowExecutionResponse) *workflowservice.DescribeWorkflowExecutionResponse {
	d.WorkflowExecutionInfo.Memo = &commonpb.Memo{Fields: map[string]*commonpb.Payload{rollout.MemoRestoreOnly: {}}}
	return d
}

// A claim is a copy only if its release, or a later one of that name, has given everything back. In doubt it is not:
// what a dead release borrowed would be lost.
func TestHasGivenBack(t *testing.T) {
	t.Parallel()
	const web = "rollout/default/shop/web"
	for _, c := range []struct {
		reason, claim string
		known         described
		ended         bool
	}{
		{"it is Healthy", web + "@1", described{{web, ""}: run(t, "1", "Healthy", completed)}, true},
		{"it was rolled back", web + "@1", described{{web, ""}: run(t, "1", "RolledBack", completed)}, true},
		{"it was stopped, perhaps with its split left in place", web + "@1",
			described{{web, ""}: run(t, "1", "Cancelled", completed)}, false},
		{"it runs", web + "@1", described{{web, ""}: run(t, "1", "Progressing", running)}, false},
		{"it was terminated", web + "@1", described{{web, ""}: run(t, "1", "Progressing", terminated)}, false},
		{"the next release has ended", web + "@1", described{{web, ""}: run(t, "2", "Healthy", completed)}, true},
		{"the next release was rolled back, perhaps before it touched the workload", web + "@1",
			described{{web, ""}: run(t, "2", "RolledBack", completed), {web, "1"}: run(t, "1", "Cancelled", completed)},
			false},
		{"the next release only restored what it had left", web + "@1", described{
			{web, ""}:  restoreOnly(run(t, "2", "RolledBack", completed)),
			{web, "1"}: run(t, "1", "Cancelled", completed)}, true},
		{"it is Healthy, and the next release was rolled back", web + "@1", described{
			{web, ""}: run(t, "2", "RolledBack", completed), {web, "1"}: run(t, "1", "Healthy", completed)}, true},
		{"the next release, which asks, runs, and it has ended", web + "@1", described{
			{web, ""}: run(t, "2", "Progressing", running), {web, "1"}: run(t, "1", "Healthy", completed)}, true},
		{"the next release, which asks, runs, and it was terminated", web + "@1", described{
			{web, ""}: run(t, "2", "Progressing", running), {web, "1"}: run(t, "1", "Progressing", terminated)}, false},
		{"the next release runs, and Temporal has forgotten it", web + "@1",
			described{{web, ""}: run(t, "2", "Progressing", running)}, false},
		{"Temporal knows no such release", web + "@1", nil, false},
		{"a task has succeeded", "task/t1/1-111@9",
			described{{"task/t1", ""}: run(t, "1", "Succeeded", completed)}, true},
		{"a task was interrupted", "task/t1/1-111@9",
			described{{"task/t1", ""}: run(t, "1", "Interrupted", completed)}, false},
		{"a user wrote it", "malformed", nil, false},
	} {
		ended, err := HasGivenBack(t.Context(), c.known, c.claim)
		require.NoError(t, err, c.reason)
		require.Equal(t, c.ended, ended, c.reason)
	}
	_, err := HasGivenBack(t.Context(), described{}, "silent")
	require.Error(t, err, "without an answer nothing is known")
}
