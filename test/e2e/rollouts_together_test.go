package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/workflows"
)

// Rollouts that start at about the same time share one preflight activity; each request gets only its own result.
func TestRolloutsStartedTogether_ShareOnePreflight(t *testing.T) {
	t.Parallel()
	e := harness.Start(t, harness.Options{})
	const n = 12
	for i := range n {
		e.Deployment(fmt.Sprintf("web-%d", i), 1, nil)
	}
	for i := range n {
		e.WaitReadyPods(fmt.Sprintf("web-%d", i), 1)
	}
	started := func(name, image string) harness.Rollout {
		return harness.Rollout{Kind: harness.Deployment, Name: name, Image: image,
			Strategy: strategy.Strategy{Style: strategy.StylePartition,
				Steps: []strategy.Step{harness.Step("100%", -1)}}}
	}
	e.StartRollout(started("web-0", "registry.test/web:v2")) // the first start waits until the worker answers
	var all sync.WaitGroup
	answers := make([]harness.Answer, n)
	missing := harness.Answer{}
	for i := 1; i < n; i++ {
		all.Go(func() { answers[i] = e.TryStartRollout(started(fmt.Sprintf("web-%d", i), "registry.test/web:v2")) })
	}
	all.Go(func() { missing = e.TryStartRollout(started("absent", "registry.test/web:v2")) })
	all.Wait()
	for i := 1; i < n; i++ {
		require.Equal(t, http.StatusAccepted, answers[i].Status, "%s", answers[i].Body)
		e.WaitPhase(fmt.Sprintf("web-%d", i), rollout.PhaseHealthy)
	}
	require.Equal(t, http.StatusUnprocessableEntity, missing.Status, "%s", missing.Body)
	require.Contains(t, string(missing.Body), "absent")

	id := sharedPreflight(t, e)
	require.NotEmpty(t, id, "no two of them shared a preflight activity")
}

// sharedPreflight returns the workflow ID of a preflight of several rollouts that needed one activity; "" if there is
// none.
func sharedPreflight(t *testing.T, e *harness.Engine) string {
	list, err := e.Workflows.ListWorkflow(t.Context(),
		&workflowservice.ListWorkflowExecutionsRequest{Namespace: e.TemporalNamespace,
			Query: "WorkflowType = '" + workflows.TypePreflight + "'"})
	require.NoError(t, err)
	for _, info := range list.GetExecutions() {
		events := e.History(info.GetExecution().GetWorkflowId())
		var in workflows.PreflightInput
		require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(
			events[0].GetWorkflowExecutionStartedEventAttributes().GetInput(), &in))
		if len(in.Rollouts) > 1 && scheduledActivities(events) == 1 {
			return info.GetExecution().GetWorkflowId()
		}
	}
	return ""
}

// scheduledActivities returns the number of activities in a history.
func scheduledActivities(events []*historypb.HistoryEvent) (n int) {
	for _, event := range events {
		if event.GetEventType() == enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED {
			n++
		}
	}
	return n
}
