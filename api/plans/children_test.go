package plans

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/mocks"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/release/plan"
)

// value is a query result.
type value struct{ status plan.ServiceStatus }

func (value) HasValue() bool { return true }

func (v value) Get(into any) error {
	raw, err := json.Marshal(v.status)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// The new run of a continued workflow may have as many events as the previous run: it is queried nevertheless.
func TestTaskReader_QueriesServiceAgain_WhenContinuedAsNew(t *testing.T) {
	t.Parallel()
	const workflowID = "task/shop-1/1-one"
	temporal := &mocks.Client{}
	queries := 0
	now := func(runID string, status plan.ServiceStatus) {
		temporal.ExpectedCalls = nil
		temporal.On("DescribeWorkflowExecution", mock.Anything, workflowID,
			"").Return(&workflowservice.DescribeWorkflowExecutionResponse{
			WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
				Status: enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, HistoryLength: 17,
				Execution: &commonpb.WorkflowExecution{RunId: runID}}}, nil)
		temporal.On("QueryWorkflow", mock.Anything, workflowID, "", mock.Anything).Return(value{status},
			nil).Run(func(mock.Arguments) { queries++ })
	}
	r := newTaskReader(&Handlers{Backend: &backend.Backend{Temporal: temporal}}, "shop-1")
	var service plan.ServiceStatus
	now("first", plan.ServiceStatus{State: plan.ItemRunning, Reason: "1 of 2 workloads is released"})
	r.fillService(t.Context(), workflowID, &service)
	require.Equal(t, "1 of 2 workloads is released", service.Reason)
	now("second", plan.ServiceStatus{State: plan.ItemSucceeded, Reason: "2 workloads are released"})
	r.fillService(t.Context(), workflowID, &service)
	require.Equal(t, "2 workloads are released", service.Reason)
	require.Equal(t, plan.ItemSucceeded, service.State)
	r.fillService(t.Context(), workflowID, &service)
	require.Equal(t, 2, queries, "an unchanged service is not queried again")

	r.childMaxAge = time.Hour
	now("third", plan.ServiceStatus{State: plan.ItemRunning})
	var again plan.ServiceStatus
	r.fillService(t.Context(), workflowID, &again)
	require.Equal(t, service, again, "a recently read service is not read again")
	r.childMaxAge = time.Nanosecond
	r.fillService(t.Context(), workflowID, &again)
	require.Equal(t, 3, queries)
}
