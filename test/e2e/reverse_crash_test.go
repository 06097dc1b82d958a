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

// reversed is an engine that executes the reverse of a plan, and dies.
type reversed struct {
	*supervised
	// back takes the plan back, forth brings its changes again.
	back, forth string
	// before is what back comes to.
	before map[string]specOf
}

func newReversed(t *testing.T) *reversed {
	c := &reversed{supervised: newSupervised(t, "SLIPWAY_SOURCE_ALLOW=127.0.0.0/8", "SLIPWAY_IMAGE=registry.test/slipway:v1")}
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
	first := succeeds(c.Engine, t, "shop")
	c.back = reverse(t, c.Engine, first.ID, http.StatusCreated).Name
	c.forth = reverse(t, c.Engine, succeeds(c.Engine, t, c.back).ID, http.StatusCreated).Name
	return c
}

func (c *reversed) specs() map[string]specOf {
	return specs(c.t, c.Engine, []string{"deployed", "stopped", "started"}, nil)
}

// takesBack executes the plan, arms a kill, and executes the reverse, in which the process may die: everything is restored, and done once.
func (c *reversed) takesBack(arm, during func()) map[string]int64 {
	c.t.Helper()
	succeeds(c.Engine, c.t, c.forth)
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
	watch.RequireAtMostOneOut(c.t, deployed)
	require.Len(c.t, watch.Timeline(c.t).Made[deployed], 2, "each of two pods is replaced once:\n%s", watch.Timeline(c.t))
	require.Equal(c.t, c.before, c.specs())
	for name := range c.before {
		made[name] += c.DeploymentGeneration(name)
	}
	return made
}

// The same at every one of them.
func TestSoakReverseWithKills(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	for lane := range crashLanes {
		t.Run(fmt.Sprintf("Lane%d", lane+1), func(t *testing.T) {
			t.Parallel()
			reverseDies(t, lane, crashLanes)
		})
	}
}

func reverseDies(t *testing.T, lane, lanes int) {
	c := newReversed(t)
	passed := 0
	clean := c.takesBack(func() { passed = len(c.points()) }, func() {})
	points := c.points()[passed:]
	require.True(t, slices.ContainsFunc(points, func(p string) bool { return p == "workload.patch.before/RESTORE/begin" }), "%v", points)
	kills := 0
	for n := lane; n < len(points); n += lanes {
		t.Logf("kill at failpoint %d: %s", n+1, points[n])
		died := c.dead()
		made := c.takesBack(func() {
			require.NoError(t, os.WriteFile(c.arm, fmt.Appendf(nil, `{"after":%d}`, n), 0o600))
		}, func() {
			require.Eventually(t, func() bool { return c.dead() > died }, harness.Patience, harness.Tick, "the worker never came by %s", points[n])
		})
		require.Equal(t, clean, made, "as many changes as without a crash at %s", points[n])
		kills++
	}
	harness.Covered(t, kills, "kills of a worker at failpoints of a reverse plan")
}

// The server dies right before and right after it saves the plan that takes a task back: whoever asks again gets that plan, which is there once.
func TestLongServerDiesWhileItReverses(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	c := aboutToDie(t)
	o := harness.Options{Binary: "slipway-failpoints", Apart: true, Env: c.env()}
	c.Engine = harness.Start(t, o)
	c.process, c.again = c.Processes[0], func() *harness.Process { return c.Server(o) }
	c.superviseUntilTheEnd()
	c.Deployment("front", 1, nil)
	c.WaitReadyPods("front", 1)
	c.PutService("front", "", "Deployment/front")
	c.PutPlan("halt", "deployPlanItems:\n- {serviceId: front, deployment: STOP}\n")
	for n, point := range []struct {
		name  string
		again int
	}{{"plan.reverse.before", http.StatusCreated}, {"plan.reverse.after", http.StatusOK}} {
		task := succeeds(c.Engine, t, "halt")
		require.NoError(t, os.WriteFile(c.arm, fmt.Appendf(nil, `{"name":%q}`, point.name), 0o600))
		_, err := http.Post(c.URL+"/api/v1/tasks/"+task.ID+"/reverse", "application/json", nil) //nolint:bodyclose // there is none
		require.Error(t, err, "the server dies at %s", point.name)
		require.Eventually(t, func() bool { return c.dead() == n+1 }, harness.Patience, harness.Tick)
		c.WaitReady()
		back := reverse(t, c.Engine, task.ID, point.again)
		require.Equal(t, back.Document, reverse(t, c.Engine, task.ID, http.StatusOK).Document)
		succeeds(c.Engine, t, back.Name)
		c.WaitReadyPods("front", 1)
	}
}
