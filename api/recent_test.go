package api_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
)

// Concurrent requests for the same object share one call to Temporal. After a write, the next read is fresh.
func TestCachedReads_ShareTemporalCalls(t *testing.T) {
	t.Parallel()
	e := newEngineWith(t, &recent.Cache{}).startWorkers()
	e.startRollout("x:2", "")
	waiting := e.waitApproval()
	var lists, queries atomic.Int64
	count := func(request any) {
		switch request.(type) {
		case *workflowservice.ListWorkflowExecutionsRequest:
			lists.Add(1)
		case *workflowservice.QueryWorkflowRequest:
			queries.Add(1)
		}
	}
	e.onRequest.Store(&count)
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() { e.call("GET", rolloutPath, "").is(http.StatusOK, "one of a hundred") })
		all.Go(func() { e.call("GET", "/api/v1/rollouts", "").is(http.StatusOK, "one of a hundred") })
	}
	all.Wait()
	require.Less(t, lists.Load(), int64(20), "a hundred list requests make few calls to Temporal")
	require.Less(t, queries.Load(), int64(50), "a hundred reads of a rollout make few queries")
	e.onRequest.Store(nil)
	require.Equal(t, rollout.WaitApproval, e.rollout().WaitingFor.Kind)
	e.call("POST", rolloutPath+"/approve", `{"gate":"`+waiting.WaitingFor.Gate+`"}`, jsonBody).is(http.StatusOK,
		"it is approved")
	require.NotEqual(t, waiting.WaitingFor, e.rollout().WaitingFor,
		"after the approval, the step no longer waits for it")
}

// A rate limit of Temporal is distinguished from an outage: it ends within a second. Temporal's client hides it by
// retrying until the deadline.
func TestRateLimitOfTemporal_IsReportedAsLimited(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	e.startRollout("x:2", "")
	e.waitApproval()
	e.rateLimited.Store(true)
	for _, path := range []string{rolloutPath, "/api/v1/rollouts"} {
		answer := e.call("GET", path, "").is(http.StatusServiceUnavailable, "the state cannot be read")
		require.Equal(t, "/docs#problem-limited", answer.problem().Type, answer.problem().Detail)
		require.Contains(t, answer.problem().Detail, "Temporal's rate limit is exceeded")
		require.Equal(t, "1", answer.header.Get("Retry-After"))
	}
	e.rateLimited.Store(false)
	e.call("GET", rolloutPath, "").is(http.StatusOK, "a second later")
}

// Repeated reads of a live task query the workflow of a service only when its history has grown, and describe it only
// now and then.
func TestTaskReads_DoNotQueryServiceEachTime(t *testing.T) {
	t.Parallel()
	e := newEngineWith(t, &recent.Cache{}).startWorkers()
	e.putPlan("shop", "111 3")
	e.party.hold("111")
	id := e.execute("shop")
	child := plan.ItemWorkflowID(id, 1, "111")
	e.wait(id, "its service under way", func(task plan.Task) bool {
		return len(task.Services) == 1 && len(task.Services[0].Workloads) == 1
	})
	var reads, looks, queries atomic.Int64
	count := func(request any) {
		switch r := request.(type) {
		case *workflowservice.DescribeWorkflowExecutionRequest:
			if r.GetExecution().GetWorkflowId() == child {
				looks.Add(1)
			} else {
				reads.Add(1)
			}
		case *workflowservice.QueryWorkflowRequest:
			if r.GetExecution().GetWorkflowId() == child {
				queries.Add(1)
			}
		}
	}
	e.onRequest.Store(&count)
	for reads.Load() < 20 {
		e.call("GET", "/api/v1/tasks/"+id, "").is(http.StatusOK, "it runs")
	}
	require.LessOrEqual(t, queries.Load(), int64(5), "its history hardly grows")
	require.Less(t, looks.Load(), int64(15), "it is not described each time")
	e.onRequest.Store(nil)
	e.party.open()
	e.waitState(id, plan.TaskSucceeded)
}
