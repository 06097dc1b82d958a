package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/test/harness"
)

const (
	// manyWorkloads is the number of workloads of the tested service.
	manyWorkloads = 300
	// eventsPerWorkload is the guaranteed maximum of history events per workload in one run of a service's workflow.
	// Temporal ends a run at 51,200 events.
	eventsPerWorkload = 10
	// workloadsPatience is the time limit for a release of all of them.
	workloadsPatience = 25 * time.Minute
)

// 300 workloads of one service are restarted, one after another and all at once.
func TestSoakServiceOfManyWorkloads_StaysWithinEventBudget(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	for _, method := range []string{"SEQUENTIAL", "PARALLEL"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			e := harness.Start(t, harness.Options{})
			e.PutService("large", "", makeWorkloads(e, manyWorkloads)...)
			e.PutPlan("restart", fmt.Sprintf("deployPlanItems:\n- {serviceId: large, priority: 1, deployment: "+
				"RESTART, containerExecMethod: %s}\n", method))
			began := time.Now()
			id := e.Execute("restart")
			var task plan.Task
			require.Eventually(t, func() bool {
				task = e.Task(id)
				return task.FinishedAt != nil
			}, workloadsPatience, time.Second, "the task never ended")
			require.Equal(t, plan.TaskSucceeded, task.State, task.Reason)
			require.Len(t, task.Services[0].Workloads, manyWorkloads)
			events := e.Events(plan.ItemWorkflowID(id, 1, "large"))
			t.Logf("%s: %s, %d events in the last run of its workflow", method, time.Since(began).Round(time.Second),
				events)
			require.LessOrEqual(t, events, eventsPerWorkload*manyWorkloads)
			harness.Covered(t, manyWorkloads, "workloads of one service, "+method)
		})
	}
}

// makeWorkloads creates n Deployments of one pod and returns their references for a service.
func makeWorkloads(e *harness.Engine, n int) []string {
	refs := make([]string, n)
	for i := range refs {
		name := fmt.Sprintf("w%d", i)
		refs[i] = "Deployment/" + name
		e.Deployment(name, 1, nil)
	}
	for i := range refs {
		e.WaitReadyPods(fmt.Sprintf("w%d", i), 1)
	}
	return refs
}
