package api_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

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
