package workflows

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/serving"
)

// statusOf runs the status workflow of a serving; observed is called with each write.
func statusOf(t *testing.T, send func(env *testsuite.TestWorkflowEnvironment, tell func(o serving.Observation)),
	observed func(env *testsuite.TestWorkflowEnvironment, n int)) (writes []serving.ObserveRequest) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.RegisterWorkflowWithOptions(ServingStatus, workflow.RegisterOptions{Name: TypeServingStatus})
	env.RegisterActivityWithOptions(func(_ context.Context, r serving.ObserveRequest) error {
		writes = append(writes, r)
		observed(env, len(writes))
		return nil
	}, activity.RegisterOptions{Name: serving.ActivityObserve})
	send(env, func(o serving.Observation) { env.SignalWorkflow(serving.SignalObserved, o) })
	env.ExecuteWorkflow(TypeServingStatus, "s1")
	require.True(t, env.IsWorkflowCompleted(), "a serving without changes has no open workflow")
	require.NoError(t, env.GetWorkflowError())
	return writes
}

func seen(domain string, available int32) serving.Observation {
	return serving.Observation{ID: "s1", UID: "u1", Domain: domain, Deployment: "s1",
		Snapshot: serving.DeploymentSnapshot{AvailableReplicas: available}}
}

func TestServingStatusCoalesces(t *testing.T) {
	t.Parallel()
	writes := statusOf(t, func(env *testsuite.TestWorkflowEnvironment, tell func(o serving.Observation)) {
		for i, o := range []serving.Observation{seen("alice", 1), seen("bob", 1), seen("alice", 2)} {
			env.RegisterDelayedCallback(func() { tell(o) }, time.Duration(i)*900*time.Millisecond)
		}
	}, func(*testsuite.TestWorkflowEnvironment, int) {})
	require.Len(t, writes, 1)
	require.Equal(t, []serving.Observation{seen("alice", 2), seen("bob", 1)}, writes[0].Observations,
		"the last of each Deployment, in one write")
	require.False(t, writes[0].At.IsZero())
}

func TestServingStatusEnds_UnderConstantChanges(t *testing.T) {
	t.Parallel()
	var start, end time.Time
	writes := statusOf(t, func(env *testsuite.TestWorkflowEnvironment, tell func(o serving.Observation)) {
		start = env.Now()
		for i := range 60 {
			env.RegisterDelayedCallback(func() {
				if !env.IsWorkflowCompleted() {
					tell(seen("alice", int32(i)))
				}
			}, time.Duration(i)*time.Second)
		}
		env.RegisterDelayedCallback(func() { env.SetContinueAsNewSuggested(true) }, 20500*time.Millisecond)
	}, func(env *testsuite.TestWorkflowEnvironment, _ int) { end = env.Now() })
	require.Greater(t, len(writes), 5)
	require.Less(t, end.Sub(start), 30*time.Second,
		"it ends before its history is full, and the next observation starts a new run")
}

func TestServingStatusKeepsObservations_ArrivingDuringAWrite(t *testing.T) {
	t.Parallel()
	writes := statusOf(t, func(env *testsuite.TestWorkflowEnvironment, tell func(o serving.Observation)) {
		env.RegisterDelayedCallback(func() { tell(seen("alice", 1)) }, 0)
	}, func(env *testsuite.TestWorkflowEnvironment, n int) {
		if n == 1 {
			env.SignalWorkflow(serving.SignalObserved, seen("alice", 2))
		}
	})
	require.Len(t, writes, 2)
	require.Equal(t, []serving.Observation{seen("alice", 2)}, writes[1].Observations)
}
