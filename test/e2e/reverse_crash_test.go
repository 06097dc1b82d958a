package e2e

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
	"slipway.io/slipway/test/sources"
)

// reversed is an engine that is killed while it executes the reverse of a plan.
type reversed struct {
	*supervised
	// back is the plan that reverts the original plan, forth the plan that reverts back.
	back, forth string
	// before has the specs that back restores.
	before map[string]workloadSpec
}

func newReversed(t *testing.T) *reversed {
	c := &reversed{supervised: newSupervised(t, "SLIPWAY_SOURCE_ALLOW=127.0.0.0/8",
		"SLIPWAY_IMAGE=registry.test/slipway:v1")}
	web := sources.NewFiles(t)
	putPackage(t, web, "/app.zip", "one")
	for name, replicas := range map[string]int32{"deployed": 2, "stopped": 2, "started": 0} {
		c.Deployment(name, replicas, nil)
		c.PutService(name, "  replicas: 2\npackage: {container: app, mountPath: /app}\n", "Deployment/"+name)
	}
	c.WaitReadyPods("deployed", 2)
	c.WaitReadyPods("stopped", 2)
	c.PutPlan("shop", `deployPlanItems:
- {serviceId: deployed, priority: 3, deployment: HTTP_UPLOAD_DEPLOY, containerExecMethod: SEQUENTIAL, httpSrcUri: '`+web.URL+`/app.zip'}
- {serviceId: stopped, priority: 2, deployment: STOP}
- {serviceId: started, priority: 1, deployment: START, containerExecMethod: SEQUENTIAL}
`)
	c.before = c.specs()
	first := mustSucceed(c.Engine, t, "shop")
	c.back = reverse(t, c.Engine, first.ID, http.StatusCreated).Name
	c.forth = reverse(t, c.Engine, mustSucceed(c.Engine, t, c.back).ID, http.StatusCreated).Name
	return c
}

func (c *reversed) specs() map[string]workloadSpec {
	return specs(c.t, c.Engine, []string{"deployed", "stopped", "started"}, nil)
}

// runReverse executes forth, arms a kill and executes back, during which the process may die. Everything must be
// restored, and every change made once.
func (c *reversed) runReverse(arm, during func()) map[string]int64 {
	c.t.Helper()
	mustSucceed(c.Engine, c.t, c.forth)
	made := map[string]int64{}
	for name := range c.before {
		made[name] = -c.DeploymentGeneration(name)
	}
	watch := observer.Start(c.t, c.Kube, c.Apps)
	defer watch.Stop()
	arm()
	id := c.Execute(c.back)
	during()
	task := c.WaitTask(id, plan.TaskSucceeded, plan.TaskFailed, plan.TaskInterrupted)
	require.Equal(c.t, plan.TaskSucceeded, task.State, task.Reason)
	deployed := observer.Name{Kind: "Deployment", Name: "deployed"}
	watch.RequireAtMostOneUnavailable(c.t, deployed)
	require.Len(c.t, watch.Timeline(c.t).Created[deployed], 2, "each of two pods is replaced once:\n%s",
		watch.Timeline(c.t))
	require.Equal(c.t, c.before, c.specs())
	for name := range c.before {
		made[name] += c.DeploymentGeneration(name)
	}
	return made
}

// The worker dies at every failpoint of a reverse plan.
func TestSoakReversePlan_RestoresOnce_WhenWorkerKilledAtEveryFailpoint(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	for lane := range crashLanes {
		t.Run(fmt.Sprintf("Lane%d", lane+1), func(t *testing.T) {
			t.Parallel()
			killDuringReverse(t, lane, crashLanes)
		})
	}
}

func killDuringReverse(t *testing.T, lane, lanes int) {
	c := newReversed(t)
	passed := 0
	clean := c.runReverse(func() { passed = len(c.passedFailpoints()) }, func() {})
	points := c.passedFailpoints()[passed:]
	require.True(t, slices.ContainsFunc(points, func(p string) bool {
		return p == "workload.patch.before/RESTORE/begin"
	}), "%v", points)
	kills := 0
	for n := lane; n < len(points); n += lanes {
		t.Logf("kill at failpoint %d: %s", n+1, points[n])
		died := c.deathCount()
		made := c.runReverse(func() {
			require.NoError(t, os.WriteFile(c.armFile, fmt.Appendf(nil, `{"after":%d}`, n), 0o600))
		}, func() {
			require.Eventually(t, func() bool {
				return c.deathCount() > died
			}, harness.Patience, harness.Tick, "the worker never reached %s", points[n])
		})
		require.Equal(t, clean, made, "as many changes as without a crash at %s", points[n])
		kills++
	}
	harness.Covered(t, kills, "kills of a worker at failpoints of a reverse plan")
}

// The server dies just before and just after it saves the plan that reverts a task. A repeated request returns that
// plan, which exists once.
func TestLongReversePlan_IsSavedOnce_WhenServerKilled(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	c := newUnstartedSupervised(t)
	o := harness.Options{Binary: "slipway-failpoints", SeparateWorker: true, Env: c.env()}
	c.Engine = harness.Start(t, o)
	c.process, c.restart = c.Processes[0], func() *harness.Process { return c.Server(o) }
	c.superviseUntilTheEnd()
	c.Deployment("front", 1, nil)
	c.WaitReadyPods("front", 1)
	c.PutService("front", "", "Deployment/front")
	c.PutPlan("halt", "deployPlanItems:\n- {serviceId: front, deployment: STOP}\n")
	for n, point := range []struct {
		name  string
		again int
	}{{"plan.reverse.before", http.StatusCreated}, {"plan.reverse.after", http.StatusOK}} {
		task := mustSucceed(c.Engine, t, "halt")
		require.NoError(t, os.WriteFile(c.armFile, fmt.Appendf(nil, `{"name":%q}`, point.name), 0o600))
		//nolint:bodyclose // there is none
		_, err := http.Post(c.URL+"/api/v1/tasks/"+task.ID+"/reverse", "application/json", nil)
		require.Error(t, err, "the server dies at %s", point.name)
		require.Eventually(t, func() bool { return c.deathCount() == n+1 }, harness.Patience, harness.Tick)
		c.WaitReady()
		back := reverse(t, c.Engine, task.ID, point.again)
		require.Equal(t, back.Document, reverse(t, c.Engine, task.ID, http.StatusOK).Document)
		mustSucceed(c.Engine, t, back.Name)
		c.WaitReadyPods("front", 1)
	}
}
