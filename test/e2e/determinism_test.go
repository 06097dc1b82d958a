package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/test/harness"
)

// With a sticky cache of 0 every workflow task replays its history from the start, so nondeterministic workflow code
// fails here. The replay test keeps these histories.
func TestWorkflows_AreDeterministic_WithoutStickyCache(t *testing.T) {
	t.Parallel()
	e := harness.Start(t, harness.Options{Binary: "slipway-failpoints", Env: []string{"SLIPWAY_STICKY_CACHE=0"}})
	e.Deployment("one", 2, slowToReady)
	e.Deployment("two", 2, slowToReady)
	e.Deployment("later", 1, nil)
	for name, n := range map[string]int{"one": 2, "two": 2, "later": 1} {
		e.WaitReadyPods(name, n)
		e.PutService(name, "", "Deployment/"+name)
	}
	e.PutPlan("shop", threeServices)

	id := e.Execute("shop")
	e.WaitTaskUntil(id, "two services running", func(task plan.Task) bool {
		return task.Services[1].State == plan.ItemRunning
	})
	require.Equal(t, http.StatusOK, e.Verb(id, "pause", `{"actor":"ann","key":"p"}`).Status)
	e.WaitTask(id, plan.TaskPaused)
	require.Equal(t, http.StatusConflict, e.Verb(id, "pause", `{"actor":"bob"}`).Status)
	require.NoError(t, e.Workflows.SignalWorkflow(t.Context(), plan.WorkflowID(id), "", "resume", nil))
	require.Equal(t, plan.TaskSucceeded, e.WaitTask(id, plan.TaskSucceeded, plan.TaskFailed).State)

	id = e.Execute("shop")
	e.WaitTaskUntil(id, "two services running", func(task plan.Task) bool {
		return task.Services[1].State == plan.ItemRunning
	})
	require.NoError(t, e.Workflows.CancelWorkflow(t.Context(), plan.WorkflowID(id), ""))
	require.Equal(t, plan.TaskStopped, e.WaitTask(id, plan.TaskStopped, plan.TaskFailed).State,
		"Temporal's Cancel means stop")
}
