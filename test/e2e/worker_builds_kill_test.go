package e2e

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/catalog"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/upgrade"
	"slipway.io/slipway/temporal/presence"
	"slipway.io/slipway/test/harness"
)

// Releases of all kinds start on the older build, continue under random kills while workers of both builds run, and end
// on the older build after a downgrade.
func TestSoakReleasesContinue_WhileWorkersOfTwoBuildsAreKilled(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	const kills = 40
	b := startBuild(t, older)
	u := newTwoParties(t, b.Engine)
	waiting := startRelease(t, b.Engine, deploymentCell(strategy.StyleCanary, harness.Nginx), nil)
	waiting.waitPaused(1)
	u.createOf("before", u.good, u.good, serving.Policy{})
	u.WaitServing("before", "Available", harness.ServingAvailable)
	task := b.pausedTask()

	b.Processes[0].Kill()
	server := b.Server(buildOptions(newer))
	before := newRestartable(b.Processes[1], func() *harness.Process { return b.Worker(buildOptions(older)) })
	now := newRestartable(b.worker(newer), func() *harness.Process { return b.Worker(buildOptions(newer)) })
	b.WaitReady()
	waiting.approve(1)
	waiting.waitPaused(2)
	random := harness.Random(t)
	for range kills {
		b.rolloutUnderKill([]*restartable{before, now}[random.IntN(2)], random)
	}
	u.update("before", u.better, u.better)
	u.WaitServing("before", "Available in the new version", func(s *kuscia.KusciaDeployment) bool {
		return harness.ServingAvailable(s) && u.tag(u.alice, "before") == "v2"
	})

	now.stop()
	b.waitWork(older)
	require.NoError(t, server.Stop())
	b.Server(buildOptions(older))
	b.WaitReady()
	waiting.approve(2)
	waiting.approveAll(3)
	waiting.requirePromoted()
	waiting.watch.RequirePromises(t)
	require.Equal(t, http.StatusOK, b.Verb(task, "resume", "{}").Status)
	require.Equal(t, plan.TaskSucceeded, b.WaitTask(task, plan.TaskSucceeded, plan.TaskFailed,
		plan.TaskInterrupted).State)
	u.remove("before")
	require.Eventually(t, func() bool {
		return b.Serving(b.Home, "before") == nil
	}, harness.Patience, harness.Tick, "the serving is deleted")
	before.stop()
	harness.Covered(t, kills, "random kills of a worker while workers of two builds run")
}

// pausedTask starts a task and pauses it between two services.
func (b *twoBuilds) pausedTask() (id string) {
	b.t.Helper()
	for _, name := range []string{"first", "second"} {
		b.Deployment(name, 2, slowToReady)
		b.WaitReadyPods(name, 2)
		b.PutService(name, "", "Deployment/"+name)
	}
	b.PutPlan("paused", "deployPlanItems: [{serviceId: first, deployment: RESTART, priority: 2}, {serviceId: second, "+
		"deployment: RESTART, priority: 1}]")
	id = b.Execute("paused")
	b.WaitTaskUntil(id, "the first running", func(task plan.Task) bool {
		return task.Services[0].State == plan.ItemRunning
	})
	require.Equal(b.t, http.StatusOK, b.Verb(id, "pause", "{}").Status)
	b.WaitTask(id, plan.TaskPaused)
	return id
}

// Workers without versioning do not take over work by themselves. A just killed worker of the versioned build still
// counts as running; the last worker to end hands the work over nevertheless.
func TestLongLastWorker_HandsWorkOver_WhenAnotherWasJustKilled(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	o := buildOptions(upgrade.Unversioned)
	o.WorkerEnv = []string{"SLIPWAY_WORKER_VERSIONING=false"}
	o.Stack = harness.NewOwnTemporal(t)
	b := &twoBuilds{Engine: harness.Start(t, o), t: t}
	killed, stopped := b.Worker(buildOptions(newer)), b.Worker(buildOptions(newer))
	b.waitWork(newer)
	b.waitWorkers(newer, 2)
	killed.Kill()
	require.NoError(t, stopped.Stop())
	b.waitWork(upgrade.Unversioned)
	b.runRollout()
}

// waitWorkers waits until Temporal reports n workers of a build on both queues.
func (b *twoBuilds) waitWorkers(id string, n int) {
	b.t.Helper()
	finder := presence.Finder{Temporal: b.Workflows, Namespace: b.TemporalNamespace}
	for _, queue := range []string{catalog.EngineQueue, catalog.PartyQueue(catalog.DefaultParty)} {
		require.Eventually(b.t, func() bool {
			found := 0
			for _, worker := range finder.Of(b.t.Context(), queue)[queue].Workers {
				if worker.Build == id {
					found++
				}
			}
			return found == n
		}, harness.Patience, harness.Tick, "%d workers of %s on queue %s", n, upgrade.Name(id), queue)
	}
}

// rolloutUnderKill runs a rollout to its end while a worker is killed at a random time.
func (b *twoBuilds) rolloutUnderKill(victim *restartable, random *rand.Rand) {
	b.t.Helper()
	r := startRelease(b.t, b.Engine, deploymentCell(strategy.StylePartition, harness.Nginx), nil)
	delay := time.Duration(random.Int64N(int64(6 * time.Second)))
	kill := time.AfterFunc(delay, victim.kill)
	defer kill.Stop()
	r.waitPaused(1)
	r.approveAll(1)
	r.requirePromoted()
	r.watch.RequirePromises(b.t)
}

// restartable is a process that is restarted after each kill.
type restartable struct {
	mu      sync.Mutex
	process *harness.Process
	restart func() *harness.Process
}

func newRestartable(process *harness.Process, again func() *harness.Process) *restartable {
	return &restartable{process: process, restart: again}
}

func (p *restartable) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.process.Kill()
	p.process = p.restart()
}

// end stops the process gracefully, without a restart.
func (p *restartable) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.process.Stop()
}
