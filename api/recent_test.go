package api_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/store/recent"
)

// Two dozen people look at the same: Temporal is asked once. Who has changed something sees it at once.
func TestManyWhoAskTheSame(t *testing.T) {
	t.Parallel()
	e := newEngineWith(t, &recent.Answers{}).work()
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
	e.before.Store(&count)
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() { e.call("GET", rolloutPath, "").is(http.StatusOK, "one of a hundred") })
		all.Go(func() { e.call("GET", "/api/v1/rollouts", "").is(http.StatusOK, "one of a hundred") })
	}
	all.Wait()
	require.Less(t, lists.Load(), int64(20), "a hundred lists are few questions to Temporal")
	require.Less(t, queries.Load(), int64(50), "and a hundred looks at a rollout few to its workflow")
	e.before.Store(nil)
	require.Equal(t, rollout.WaitApproval, e.rollout().WaitingFor.Kind)
	e.call("POST", rolloutPath+"/approve", `{"gate":"`+waiting.WaitingFor.Gate+`"}`, jsonBody).is(http.StatusOK, "it is approved")
	require.NotEqual(t, waiting.WaitingFor, e.rollout().WaitingFor, "whoever has approved does not see the step wait for it")
}

// A limit of Temporal's is told from an outage: it is over in a second. Its own client hides it, for it asks again until nobody waits any more.
func TestALimitIsNoOutage(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	e.startRollout("x:2", "")
	e.waitApproval()
	e.limited.Store(true)
	for _, path := range []string{rolloutPath, "/api/v1/rollouts"} {
		answer := e.call("GET", path, "").is(http.StatusServiceUnavailable, "nothing is known just now")
		require.Equal(t, "/docs#problem-limited", answer.problem().Type, answer.problem().Detail)
		require.Contains(t, answer.problem().Detail, "Temporal is there")
		require.Equal(t, "1", answer.header.Get("Retry-After"))
	}
	e.limited.Store(false)
	e.call("GET", rolloutPath, "").is(http.StatusOK, "a second later")
}

// Whoever reads a live task again and again has the workflow of a service asked for what is new, and has it looked at now and then.
func TestAServiceIsNotAskedAtEachReadOfItsTask(t *testing.T) {
	t.Parallel()
	e := newEngineWith(t, &recent.Answers{}).work()
	e.putPlan("shop", "111 3")
	e.party.hold("111")
	id := e.execute("shop")
	child := plan.ItemWorkflowID(id, 1, "111")
	e.wait(id, "its service under way", func(task plan.Task) bool { return len(task.Services) == 1 && len(task.Services[0].Workloads) == 1 })
	var reads, looks, queries atomic.Int64
	count := func(request any) {
		switch asked := request.(type) {
		case *workflowservice.DescribeWorkflowExecutionRequest:
			if asked.GetExecution().GetWorkflowId() == child {
				looks.Add(1)
			} else {
				reads.Add(1)
			}
		case *workflowservice.QueryWorkflowRequest:
			if asked.GetExecution().GetWorkflowId() == child {
				queries.Add(1)
			}
		}
	}
	e.before.Store(&count)
	for reads.Load() < 20 {
		e.call("GET", "/api/v1/tasks/"+id, "").is(http.StatusOK, "it runs")
	}
	require.LessOrEqual(t, queries.Load(), int64(5), "its history hardly grows")
	require.Less(t, looks.Load(), int64(15), "and it is not looked at each time")
	e.before.Store(nil)
	e.party.open()
	e.waitState(id, plan.TaskSucceeded)
}
