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

// statusesOf runs the workflow that writes statuses; write returns the unwritten ones.
func statusesOf(t *testing.T, send func(*testsuite.TestWorkflowEnvironment),
	write func(n int, in serving.ObserveManyRequest) serving.ObserveManyResult) (writes []serving.ObserveManyRequest,
	err error) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.RegisterWorkflowWithOptions(ServingStatuses, workflow.RegisterOptions{Name: TypeServingStatuses})
	env.RegisterActivityWithOptions(func(_ context.Context, in serving.ObserveManyRequest) (serving.ObserveManyResult,
		error) {
		writes = append(writes, in)
		return write(len(writes), in), nil
	}, activity.RegisterOptions{Name: serving.ActivityObserveMany})
	send(env)
	env.ExecuteWorkflow(TypeServingStatuses, []serving.Observation{})
	require.True(t, env.IsWorkflowCompleted(), "without changes no workflow is open")
	return writes, env.GetWorkflowError()
}

func seenOf(id, domain string, available int32) serving.Observation {
	return serving.Observation{ID: id, UID: "uid of " + id, Domain: domain, Deployment: id,
		Snapshot: serving.DeploymentSnapshot{AvailableReplicas: available}}
}

func all(int, serving.ObserveManyRequest) serving.ObserveManyResult {
	return serving.ObserveManyResult{}
}

func observe(env *testsuite.TestWorkflowEnvironment, after time.Duration, burst ...serving.Observation) {
	env.RegisterDelayedCallback(func() { env.SignalWorkflow(serving.SignalObservedMany, burst) }, after)
}

func TestABurstOfManyServingsIsWrittenTogether(t *testing.T) {
	t.Parallel()
	writes, err := statusesOf(t, func(env *testsuite.TestWorkflowEnvironment) {
		observe(env, 0, seenOf("s1", "alice", 1), seenOf("s2", "alice", 1))
		observe(env, time.Second, seenOf("s1", "bob", 1), seenOf("s1", "alice", 2))
	}, all)
	require.NoError(t, err)
	require.Len(t, writes, 1)
	require.Len(t, writes[0].Servings, 2)
	require.Equal(t, []serving.Observation{seenOf("s1", "alice", 2), seenOf("s1", "bob", 1)},
		writes[0].Servings[0].Observations, "the last of each Deployment")
	require.Equal(t, "s2", writes[0].Servings[1].ID)
	require.False(t, writes[0].Servings[0].At.IsZero())
}

func TestManyStatusesAreWrittenInBatches(t *testing.T) {
	t.Parallel()
	var burst []serving.Observation
	for i := range 2*maxStatuses + 1 {
		burst = append(burst, seenOf(string(rune('a'+i%26))+string(rune('a'+i/26)), "alice", 1))
	}
	writes, err := statusesOf(t, func(env *testsuite.TestWorkflowEnvironment) { observe(env, 0, burst...) }, all)
	require.NoError(t, err)
	require.Len(t, writes, 3, "an activity has only seconds for its writes")
}

func TestServingStatuses_WriteOthers_WhenOneFails(t *testing.T) {
	t.Parallel()
	writes, err := statusesOf(t, func(env *testsuite.TestWorkflowEnvironment) {
		observe(env, 0, seenOf("bad", "alice", 1), seenOf("worse", "alice", 1), seenOf("good", "alice", 1))
		observe(env, 5*time.Second, seenOf("good", "alice", 2))
	}, func(n int, in serving.ObserveManyRequest) (result serving.ObserveManyResult) {
		for _, s := range in.Servings {
			switch {
			case s.ID == "bad" && n < 4:
				result.Unwritten = append(result.Unwritten, serving.Unwritten{ID: s.ID, Message: "not yet"})
			case s.ID == "worse":
				result.Unwritten = append(result.Unwritten, serving.Unwritten{ID: s.ID, Message: "never", Final: true})
			}
		}
		return result
	})
	require.NoError(t, err)
	require.Len(t, writes, 4)
	ids := func(in serving.ObserveManyRequest) (ids []string) {
		for _, s := range in.Servings {
			ids = append(ids, s.ID)
		}
		return ids
	}
	require.Equal(t, []string{"bad", "worse", "good"}, ids(writes[0]))
	require.Contains(t, ids(writes[1]), "bad", "it is retried")
	require.NotContains(t, ids(writes[1]), "worse", "a permanently refused write is not retried")
	later := append(ids(writes[1]), ids(writes[2])...)
	require.Contains(t, later, "good", "other observations are written meanwhile")
}

func TestServingStatuses_IgnoreOlderObservation(t *testing.T) {
	t.Parallel()
	older, newer := seenOf("s1", "alice", 1), seenOf("s1", "alice", 2)
	older.Snapshot.DeploymentUID, newer.Snapshot.DeploymentUID = "d", "d"
	older.Snapshot.ResourceVersion, newer.Snapshot.ResourceVersion = "7", "9"
	writes, err := statusesOf(t, func(env *testsuite.TestWorkflowEnvironment) {
		observe(env, 0, newer)
		observe(env, time.Second, older)
	}, all)
	require.NoError(t, err)
	require.Equal(t, []serving.Observation{newer}, writes[0].Servings[0].Observations,
		"one of two workers may lag behind")
}

func TestServingStatusesContinueAsNew_UnderConstantChanges(t *testing.T) {
	t.Parallel()
	writes, err := statusesOf(t, func(env *testsuite.TestWorkflowEnvironment) {
		for i := range 30 {
			env.RegisterDelayedCallback(func() {
				if !env.IsWorkflowCompleted() {
					env.SignalWorkflow(serving.SignalObservedMany,
						[]serving.Observation{seenOf("s1", "alice", int32(i))})
				}
			}, time.Duration(i)*time.Second)
		}
		env.RegisterDelayedCallback(func() { env.SetContinueAsNewSuggested(true) }, 10500*time.Millisecond)
	}, all)
	require.True(t, workflow.IsContinueAsNewError(err), "%v", err)
	require.NotEmpty(t, writes)
}

func TestServingStatusesKeepObservations_ArrivingDuringAWrite(t *testing.T) {
	t.Parallel()
	var env *testsuite.TestWorkflowEnvironment
	writes, err := statusesOf(t, func(e *testsuite.TestWorkflowEnvironment) {
		env = e
		observe(env, 0, seenOf("s1", "alice", 1))
	}, func(n int, in serving.ObserveManyRequest) serving.ObserveManyResult {
		if n == 1 {
			env.SignalWorkflow(serving.SignalObservedMany, []serving.Observation{seenOf("s1", "alice", 2)})
		}
		return all(n, in)
	})
	require.NoError(t, err)
	require.Len(t, writes, 2)
	require.Equal(t, []serving.Observation{seenOf("s1", "alice", 2)}, writes[1].Servings[0].Observations)
}
