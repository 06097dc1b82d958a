package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// The API server is down for longer than the budget: the task is interrupted, not failed, and resume continues from
// where it was.
func TestLongTask_IsInterrupted_WhenClusterUnreachable(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	p := harness.NewPrivateStack(t)
	e := harness.Start(t, harness.Options{Stack: &p.Stack, Env: []string{"SLIPWAY_UNREACHABLE_BUDGET=5s"}})
	e.Deployment("one", 3, slowToReady)
	e.Deployment("two", 1, nil)
	e.WaitReadyPods("one", 3)
	e.WaitReadyPods("two", 1)
	e.PutService("1", "", "Deployment/one")
	e.PutService("2", "", "Deployment/two")
	e.PutPlan("shop", "deployPlanItems:\n- {serviceId: 1, priority: 2, deployment: RESTART, containerExecMethod: "+
		"SEQUENTIAL}\n- {serviceId: 2, priority: 1, deployment: RESTART}\n")
	id := e.Execute("shop")
	e.WaitTaskUntil(id, "a first new pod", func(task plan.Task) bool {
		return task.Services[0].State == plan.ItemRunning && e.DeploymentGeneration("one") > 1
	})
	stamped := e.DeploymentGeneration("one")

	p.Kill(harness.PartAPIServer)
	task := e.WaitTask(id, plan.TaskInterrupted, plan.TaskFailed)
	require.Equal(t, plan.TaskInterrupted, task.State, "an outage is not a failure: %s", task.Reason)
	require.NotEmpty(t, task.Reason)
	p.StartPart(harness.PartAPIServer)

	require.Eventually(t, func() bool {
		answer, err := e.TryCall(http.MethodPost, "/api/v1/tasks/"+id+"/resume",
			`{"actor":"ann","reason":"it is back"}`)
		return err == nil && answer.Status == http.StatusOK
	}, harness.Patience, harness.Tick, "the task is never resumed")
	task = e.WaitTask(id, plan.TaskSucceeded, plan.TaskFailed)
	require.Equal(t, plan.TaskSucceeded, task.State, task.Reason)
	require.LessOrEqual(t, e.DeploymentGeneration("one"), stamped+1,
		"resume does not restart the pods again: at most it restores the strategy")
}

// Temporal is killed at random moments of a task and restarts on its database file: the task continues, and nothing is
// done twice.
func TestLongTask_Succeeds_WhenTemporalKilledAtRandom(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	killTemporal(t, 1)
}

func TestSoakTask_Succeeds_WhenTemporalKilledAtRandom(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	killTemporal(t, 20)
}

// killTemporal runs tasks and kills Temporal three times during each.
func killTemporal(t *testing.T, tasks int) {
	t.Helper()
	random := harness.Random(t)
	p := harness.NewPrivateStack(t)
	e := harness.Start(t, harness.Options{Stack: &p.Stack})
	e.Deployment("one", 3, slowToReady)
	e.WaitReadyPods("one", 3)
	e.PutService("1", "", "Deployment/one")
	e.PutPlan("shop", "deployPlanItems: [{serviceId: 1, deployment: RESTART, containerExecMethod: SEQUENTIAL}]")
	for range tasks {
		watch := observer.Start(t, e.Kube, e.Apps)
		id := e.Execute("shop")
		for range 3 {
			timer := time.NewTimer(time.Duration(random.Int64N(int64(2 * time.Second))))
			<-timer.C
			p.Kill(harness.PartTemporal)
			p.StartPart(harness.PartTemporal)
		}
		task := e.WaitTask(id, plan.TaskSucceeded, plan.TaskFailed)
		require.Equal(t, plan.TaskSucceeded, task.State, task.Reason)
		one := observer.Name{Kind: "Deployment", Name: "one"}
		watch.RequireAtMostOneUnavailable(t, one)
		seen := watch.Timeline(t)
		require.Len(t, seen.Created[one], 3, "no pod is restarted twice:\n%s", seen)
		watch.Stop()
	}
	harness.Covered(t, 3*tasks, "random kills of Temporal")
}

// `slipway dev` needs only a kubeconfig and Temporal's address, here those of a private stack.
func TestLongDev_RunsTask_OnPrivateStack(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	p := harness.NewPrivateStack(t)
	e := harness.Start(t, harness.Options{Stack: &p.Stack})
	e.Deployment("one", 1, nil)
	e.WaitReadyPods("one", 1)
	e.PutService("1", "", "Deployment/one")
	e.PutPlan("shop", "deployPlanItems: [{serviceId: 1, deployment: RESTART}]")
	require.Equal(t, plan.TaskSucceeded, e.WaitTask(e.Execute("shop"), plan.TaskSucceeded, plan.TaskFailed).State)
}
