package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// crashPlan has a SEQUENTIAL restart, a STOP and a START, one after another.
const crashPlan = `deployPlanItems:
- {serviceId: restarted, priority: 3, deployment: RESTART, containerExecMethod: SEQUENTIAL}
- {serviceId: stopped, priority: 2, deployment: STOP}
- {serviceId: started, priority: 1, deployment: START}
`

// supervised is an engine of which one process is killed at points of the test's choice and comes back at once, as under a supervisor.
type supervised struct {
	*harness.Engine
	t   *testing.T
	arm string
	log string
	// again starts the process anew.
	again func() *harness.Process

	mu      sync.Mutex
	process *harness.Process
	deaths  int
	ending  bool
	done    chan struct{}
}

// newSupervised is one whose worker dies; env is added to the worker's.
func newSupervised(t *testing.T, env ...string) *supervised {
	return supervisedAs(t, harness.Options{Binary: "slipway-failpoints", WorkerEnv: env})
}

// supervisedAs is one whose worker dies, of another binary or with more in its environment.
func supervisedAs(t *testing.T, o harness.Options) *supervised {
	c := aboutToDie(t)
	o.Apart, o.WorkerEnv = true, append(c.env(), o.WorkerEnv...)
	c.Engine = harness.Start(t, o)
	c.process, c.again = c.Processes[1], func() *harness.Process { return c.Worker(o) }
	c.superviseUntilTheEnd()
	return c
}

// aboutToDie is one of which no process runs yet.
func aboutToDie(t *testing.T) *supervised {
	dir := t.TempDir()
	return &supervised{t: t, arm: filepath.Join(dir, "arm"), log: filepath.Join(dir, "log"), done: make(chan struct{})}
}

// env is the environment of the process that dies.
func (c *supervised) env() []string {
	return []string{"SLIPWAY_FAILPOINTS_FILE=" + c.arm, "SLIPWAY_FAILPOINTS_LOG=" + c.log,
		"SLIPWAY_HEARTBEAT_TIMEOUT=4s", "SLIPWAY_STICKY_CACHE=0"} // a death is noticed in 4 s, not in 10, and no workflow task waits for the dead worker
}

func (c *supervised) superviseUntilTheEnd() {
	go c.supervise()
	c.t.Cleanup(func() {
		c.mu.Lock()
		c.ending = true
		c.process.Kill()
		c.mu.Unlock()
		<-c.done
	})
}

// crashed is one that runs crashPlan.
type crashed struct{ *supervised }

func newCrashed(t *testing.T) *crashed {
	c := &crashed{newSupervised(t)}
	for name, replicas := range map[string]int32{"restarted": 3, "stopped": 2, "started": 0} {
		c.Deployment(name, replicas, nil)
		c.PutService(name, "  replicas: 2\n", "Deployment/"+name)
	}
	c.PutPlan("crash", crashPlan)
	return c
}

func (c *supervised) supervise() {
	defer close(c.done)
	for {
		c.mu.Lock()
		process := c.process
		c.mu.Unlock()
		<-process.Done()
		c.mu.Lock()
		if c.ending {
			c.mu.Unlock()
			return
		}
		c.deaths++
		c.process = c.again()
		c.mu.Unlock()
	}
}

// killNow kills the process as a crash does; the supervisor brings it back.
func (c *supervised) killNow() {
	c.mu.Lock()
	process := c.process
	c.mu.Unlock()
	process.Kill()
}

func (c *supervised) dead() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deaths
}

// reset brings the workloads back to where the plan begins.
func (c *crashed) reset() {
	c.t.Helper()
	c.ScaleDeployment("stopped", 2)
	c.ScaleDeployment("started", 0)
	c.WaitReadyPods("restarted", 3)
	c.WaitReadyPods("stopped", 2)
	c.WaitReadyPods("started", 0)
}

// changes counts how often the spec of each Deployment has changed.
func (c *crashed) changes() map[string]int64 {
	g := map[string]int64{}
	for _, name := range []string{"restarted", "stopped", "started"} {
		g[name] = c.DeploymentGeneration(name)
	}
	return g
}

// release runs the plan once and checks that it did everything once.
func (c *crashed) release(during func(id string)) map[string]int64 {
	c.t.Helper()
	c.reset()
	before, old := c.changes(), c.PodUIDs("restarted")
	watch := observer.Start(c.t, c.Kube, c.Apps)
	defer watch.Stop() // a hundred releases would each be watched to the end of the last
	id := c.Execute("crash")
	during(id)
	task := c.WaitTask(id, plan.TaskSucceeded, plan.TaskFailed, plan.TaskInterrupted)
	require.Equal(c.t, plan.TaskSucceeded, task.State, task.Reason)
	restarted := observer.Name{Kind: "Deployment", Name: "restarted"}
	watch.RequireAtMostOneOut(c.t, restarted)
	seen := watch.Timeline(c.t)
	require.Len(c.t, seen.Made[restarted], 3, "each of three pods is replaced once, no pod is restarted twice:\n%s", seen)
	for uid := range c.PodUIDs("restarted") {
		require.NotContains(c.t, old, uid, "every pod is replaced")
	}
	c.WaitReadyPods("stopped", 0)
	c.WaitReadyPods("started", 2)
	made := c.changes()
	for name := range made {
		made[name] -= before[name]
	}
	return made
}

// crashLanes is how many engines share the failpoints: a death is noticed after seconds, in which the machine has nothing to do.
const crashLanes = 5

// The worker dies before or after an external write of a plan, and comes back: the task succeeds as if nothing had been. This is one death in five of those of
// TestSoakWorkerKilledAtEveryFailpoint.
func TestLongWorkerKilledAtFailpoints(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	dieInLane(t, 0, crashLanes)
}

// The worker dies before and after every external write of a plan, each time once.
func TestSoakWorkerKilledAtEveryFailpoint(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	for lane := range crashLanes {
		t.Run(fmt.Sprintf("Lane%d", lane+1), func(t *testing.T) {
			t.Parallel()
			dieInLane(t, lane, crashLanes)
		})
	}
}

// dieInLane has the worker die at one in so many of the failpoints of a plan.
func dieInLane(t *testing.T, lane, lanes int) {
	t.Helper()
	c := newCrashed(t)
	clean := c.release(func(string) {})
	points := c.points()
	require.Greater(t, len(points), lanes, "the run without a crash passes failpoints")
	kills := 0
	for n := lane; n < len(points); n += lanes {
		c.dieAt(n+1, points[n], clean)
		kills++
	}
	harness.Covered(t, kills, "kills of a worker at failpoints of a plan")
}

// dieAt kills the worker at the n-th failpoint of a release, and wants as many changes as without a crash.
func (c *crashed) dieAt(n int, point string, clean map[string]int64) {
	c.t.Logf("kill at failpoint %d: %s", n, point)
	died := c.dead()
	require.NoError(c.t, os.WriteFile(c.arm, fmt.Appendf(nil, `{"after":%d}`, n-1), 0o600))
	made := c.release(func(string) {
		require.Eventually(c.t, func() bool { return c.dead() > died }, harness.Patience, harness.Tick, "the worker never came by failpoint %d, %s", n, point)
	})
	require.Equal(c.t, clean, made, "a repeated write leaves the generation unchanged: as many changes as without a crash at %s", point)
}

func (c *supervised) points() []string {
	raw, err := os.ReadFile(c.log)
	require.NoError(c.t, err)
	return strings.Split(strings.TrimSpace(string(raw)), "\n")
}

// The worker dies at random moments of a plan.
func TestLongWorkerKilledAtRandom(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	killWorker(t, 3)
}

func TestSoakWorkerKilledAtRandom(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	killWorker(t, 100)
}

func killWorker(t *testing.T, kills int) {
	t.Helper()
	random := harness.Random(t)
	c := newCrashed(t)
	clean := c.release(func(string) {})
	for range kills {
		moment := time.Duration(random.Int64N(int64(4 * time.Second)))
		made := c.release(func(id string) {
			timer := time.NewTimer(moment)
			defer timer.Stop()
			<-timer.C
			t.Logf("kill after %s", moment)
			c.killNow()
		})
		require.Equal(t, clean, made, "as many changes as without a crash")
	}
	harness.Covered(t, kills, "random kills of a worker during a plan")
}

// The API process dies at random moments: tasks go on, and a repeated request with the same key is the same task.
func TestLongServerKilledAtRandom(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	killServer(t, 3)
}

func TestSoakServerKilledAtRandom(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	killServer(t, 50)
}

func killServer(t *testing.T, kills int) {
	t.Helper()
	random := harness.Random(t)
	o := harness.Options{Apart: true}
	e := harness.Start(t, o)
	e.Deployment("one", 2, nil)
	e.WaitReadyPods("one", 2)
	e.PutService("1", "", "Deployment/one")
	e.PutPlan("again", "deployPlanItems: [{serviceId: 1, deployment: RESTART, containerExecMethod: SEQUENTIAL}]")
	server := e.Processes[0]
	for round := range kills {
		key := fmt.Sprintf("round-%d", round)
		moment := time.Duration(random.Int64N(int64(400 * time.Millisecond)))
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			timer := time.NewTimer(moment)
			defer timer.Stop()
			<-timer.C
			server.Kill()
		}()
		_, _ = e.TryCall(http.MethodPost, "/api/v1/plans/again/execute", "", "Idempotency-Key", key)
		<-killed
		server = e.Server(o)
		e.WaitReady()
		id := e.Execute("again", "Idempotency-Key", key)
		task := e.WaitTask(id, plan.TaskSucceeded, plan.TaskFailed)
		require.Equal(t, plan.TaskSucceeded, task.State, task.Reason)
		require.Equal(t, id, e.Execute("again", "Idempotency-Key", key), "one key, one task, whatever died in between")
	}
	tasks := e.Call(http.MethodGet, "/api/v1/tasks?plan=again", "")
	require.Equal(t, kills, strings.Count(string(tasks.Body), `"createdAt"`), "as many tasks as keys: %s", tasks.Body)
	harness.Covered(t, kills, "random kills of a server while a plan is executed")
}
