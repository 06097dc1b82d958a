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

// crashPlan has a SEQUENTIAL restart, a STOP and a START in three waves.
const crashPlan = `deployPlanItems:
- {serviceId: restarted, priority: 3, deployment: RESTART, containerExecMethod: SEQUENTIAL}
- {serviceId: stopped, priority: 2, deployment: STOP}
- {serviceId: started, priority: 1, deployment: START}
`

// supervised is an engine whose process is killed at points chosen by the test and restarted at once, as under a
// supervisor.
type supervised struct {
	*harness.Engine
	t          *testing.T
	armFile    string
	passedFile string
	// restart starts the process again.
	restart func() *harness.Process

	mu      sync.Mutex
	process *harness.Process
	deaths  int
	ending  bool
	done    chan struct{}
}

// newSupervised returns an engine whose worker is killed; env is added to the worker's environment.
func newSupervised(t *testing.T, env ...string) *supervised {
	return newSupervisedWith(t, harness.Options{Binary: "slipway-failpoints", WorkerEnv: env})
}

// newSupervisedWith is newSupervised with another binary or more options.
func newSupervisedWith(t *testing.T, o harness.Options) *supervised {
	c := newUnstartedSupervised(t)
	o.SeparateWorker, o.WorkerEnv = true, append(c.env(), o.WorkerEnv...)
	c.Engine = harness.Start(t, o)
	c.process, c.restart = c.Processes[1], func() *harness.Process { return c.Worker(o) }
	c.superviseUntilTheEnd()
	return c
}

// newUnstartedSupervised returns a supervised engine without a running process.
func newUnstartedSupervised(t *testing.T) *supervised {
	dir := t.TempDir()
	return &supervised{t: t, armFile: filepath.Join(dir, "arm"), passedFile: filepath.Join(dir, "log"),
		done: make(chan struct{})}
}

// env returns the environment of the process that is killed.
func (c *supervised) env() []string {
	return []string{"SLIPWAY_FAILPOINTS_FILE=" + c.armFile, "SLIPWAY_FAILPOINTS_LOG=" + c.passedFile,
		// Temporal notices a death after 4 s instead of 10 s, and no workflow task waits for the dead worker
		"SLIPWAY_HEARTBEAT_TIMEOUT=4s", "SLIPWAY_STICKY_CACHE=0"}
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

// crashed is a supervised engine that runs crashPlan.
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
		c.process = c.restart()
		c.mu.Unlock()
	}
}

// killNow kills the process as a crash would; the supervisor restarts it.
func (c *supervised) killNow() {
	c.mu.Lock()
	process := c.process
	c.mu.Unlock()
	process.Kill()
}

func (c *supervised) deathCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deaths
}

// reset scales the workloads to the sizes that they have before the plan.
func (c *crashed) reset() {
	c.t.Helper()
	c.ScaleDeployment("stopped", 2)
	c.ScaleDeployment("started", 0)
	c.WaitReadyPods("restarted", 3)
	c.WaitReadyPods("stopped", 2)
	c.WaitReadyPods("started", 0)
}

// specGenerations returns metadata.generation of each Deployment, which counts the changes of its spec.
func (c *crashed) specGenerations() map[string]int64 {
	g := map[string]int64{}
	for _, name := range []string{"restarted", "stopped", "started"} {
		g[name] = c.DeploymentGeneration(name)
	}
	return g
}

// runPlan runs the plan once, checks that every change was made once and returns the number of spec changes of each
// Deployment.
func (c *crashed) runPlan(during func(id string)) map[string]int64 {
	c.t.Helper()
	c.reset()
	before, old := c.specGenerations(), c.PodUIDs("restarted")
	watch := observer.Start(c.t, c.Kube, c.Apps)
	defer watch.Stop() // otherwise each of a hundred watches would last until the end of the test
	id := c.Execute("crash")
	during(id)
	task := c.WaitTask(id, plan.TaskSucceeded, plan.TaskFailed, plan.TaskInterrupted)
	require.Equal(c.t, plan.TaskSucceeded, task.State, task.Reason)
	restarted := observer.Name{Kind: "Deployment", Name: "restarted"}
	watch.RequireAtMostOneUnavailable(c.t, restarted)
	seen := watch.Timeline(c.t)
	require.Len(c.t, seen.Created[restarted], 3, "each of three pods is replaced once, no pod is restarted twice:\n%s",
		seen)
	for uid := range c.PodUIDs("restarted") {
		require.NotContains(c.t, old, uid, "every pod is replaced")
	}
	c.WaitReadyPods("stopped", 0)
	c.WaitReadyPods("started", 2)
	made := c.specGenerations()
	for name := range made {
		made[name] -= before[name]
	}
	return made
}

// crashLanes is the number of engines that share the failpoints. Temporal notices a death only after seconds, during
// which the machine is idle.
const crashLanes = 5

// The worker dies before or after an external write of a plan and restarts: the task succeeds as without a crash. This
// test takes every fifth kill of TestSoakTask_Succeeds_WhenWorkerKilledAtEveryFailpoint.
func TestLongTask_Succeeds_WhenWorkerKilledAtFailpoints(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	killWorkerInLane(t, 0, crashLanes)
}

// The worker dies once before and once after every external write of a plan.
func TestSoakTask_Succeeds_WhenWorkerKilledAtEveryFailpoint(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	for lane := range crashLanes {
		t.Run(fmt.Sprintf("Lane%d", lane+1), func(t *testing.T) {
			t.Parallel()
			killWorkerInLane(t, lane, crashLanes)
		})
	}
}

// killWorkerInLane kills the worker at every lanes-th failpoint of a plan, starting with number lane.
func killWorkerInLane(t *testing.T, lane, lanes int) {
	t.Helper()
	c := newCrashed(t)
	clean := c.runPlan(func(string) {})
	points := c.passedFailpoints()
	require.Greater(t, len(points), lanes, "the run without a crash passes failpoints")
	kills := 0
	for n := lane; n < len(points); n += lanes {
		c.killAtFailpoint(n+1, points[n], clean)
		kills++
	}
	harness.Covered(t, kills, "kills of a worker at failpoints of a plan")
}

// killAtFailpoint kills the worker at the n-th failpoint of a plan and requires as many changes as without a crash.
func (c *crashed) killAtFailpoint(n int, point string, clean map[string]int64) {
	c.t.Logf("kill at failpoint %d: %s", n, point)
	died := c.deathCount()
	require.NoError(c.t, os.WriteFile(c.armFile, fmt.Appendf(nil, `{"after":%d}`, n-1), 0o600))
	made := c.runPlan(func(string) {
		require.Eventually(c.t, func() bool {
			return c.deathCount() > died
		}, harness.Patience, harness.Tick, "the worker never reached failpoint %d, %s", n, point)
	})
	require.Equal(c.t, clean, made, "a repeated write leaves the generation unchanged: as many changes as without a "+
		"crash at %s", point)
}

// passedFailpoints returns the failpoints that the process has passed.
func (c *supervised) passedFailpoints() []string {
	raw, err := os.ReadFile(c.passedFile)
	require.NoError(c.t, err)
	return strings.Split(strings.TrimSpace(string(raw)), "\n")
}

// The worker dies at random moments of a plan.
func TestLongTask_Succeeds_WhenWorkerKilledAtRandom(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	killWorker(t, 3)
}

func TestSoakTask_Succeeds_WhenWorkerKilledAtRandom(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	killWorker(t, 100)
}

func killWorker(t *testing.T, kills int) {
	t.Helper()
	random := harness.Random(t)
	c := newCrashed(t)
	clean := c.runPlan(func(string) {})
	for range kills {
		moment := time.Duration(random.Int64N(int64(4 * time.Second)))
		made := c.runPlan(func(id string) {
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

// The API server process dies at random moments: tasks continue, and a repeated request with the same key returns the
// same task.
func TestLongTask_IsStartedOnce_WhenServerKilledAtRandom(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	killServer(t, 3)
}

func TestSoakTask_IsStartedOnce_WhenServerKilledAtRandom(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	killServer(t, 50)
}

func killServer(t *testing.T, kills int) {
	t.Helper()
	random := harness.Random(t)
	o := harness.Options{SeparateWorker: true}
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
		require.Equal(t, id, e.Execute("again", "Idempotency-Key", key),
			"one key starts one task, even with a crash in between")
	}
	tasks := e.Call(http.MethodGet, "/api/v1/tasks?plan=again", "")
	require.Equal(t, kills, strings.Count(string(tasks.Body), `"createdAt"`), "as many tasks as keys: %s", tasks.Body)
	harness.Covered(t, kills, "random kills of a server while a plan is executed")
}
