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

func TestSoakBuildBesideTheOneBefore(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	besideTheBuildBefore(t, 40)
}

// besideTheBuildBefore has releases of all kinds begin by the build before, go on under load and random kills while both run, and end by the build before, which is gone back to.
func besideTheBuildBefore(t *testing.T, kills int) {
	t.Helper()
	previous := harness.Options{Binary: "slipway-previous", Apart: true, Stack: harness.NewOwnTemporal(t)}
	b := &twoBuilds{Engine: harness.Start(t, previous), t: t}
	u := unite(t, b.Engine)
	waiting := begin(t, b.Engine, deploymentBy(strategy.StyleCanary, harness.Nginx), nil)
	waiting.rest(1)
	u.createOf("before", u.good, u.good, serving.Policy{})
	u.WaitServing("before", "up", harness.ServingAvailable)
	task := b.pausedTask()

	current := harness.Options{Apart: true, Stack: previous.Stack}
	b.Processes[0].Kill()
	server := b.Server(current)
	before := newPet(b.Processes[1], func() *harness.Process { return b.Worker(previous) })
	now := newPet(b.Worker(current), func() *harness.Process { return b.Worker(current) })
	require.Eventually(t, func() bool { return b.getsWork("slipway") != upgrade.Unversioned }, harness.Patience, harness.Tick, "this build gets the work")
	b.WaitReady()
	waiting.approve(1)
	waiting.rest(2)
	random := harness.Random(t)
	for range kills {
		b.underKill([]*pet{before, now}[random.IntN(2)], random)
	}
	u.update("before", u.better, u.better)
	u.WaitServing("before", "of the new version", func(s *kuscia.KusciaDeployment) bool {
		return harness.ServingAvailable(s) && u.tag(u.alice, "before") == "v2"
	})

	now.end()
	require.Eventually(t, func() bool { return b.getsWork("slipway") == upgrade.Unversioned }, harness.Patience, harness.Tick, "the build before gets the work back")
	require.NoError(t, server.Stop())
	b.Server(previous)
	b.WaitReady()
	waiting.approve(2)
	waiting.approveAll(3)
	waiting.endsNew()
	waiting.watch.RequirePromises(t)
	require.Equal(t, http.StatusOK, b.Verb(task, "resume", "{}").Status)
	require.Equal(t, plan.TaskSucceeded, b.WaitTask(task, plan.TaskSucceeded, plan.TaskFailed, plan.TaskInterrupted).State)
	u.remove("before")
	require.Eventually(t, func() bool { return b.Serving(b.Home, "before") == nil }, harness.Patience, harness.Tick, "the serving is deleted")
	before.end()
	harness.Covered(t, kills, "random kills of a worker beside one of another build")
}

// pausedTask is a task that is paused between two services.
func (b *twoBuilds) pausedTask() (id string) {
	b.t.Helper()
	for _, name := range []string{"first", "second"} {
		b.Deployment(name, 2, slowToReady)
		b.WaitReadyPods(name, 2)
		b.PutService(name, "", "Deployment/"+name)
	}
	b.PutPlan("paused", "deployPlanItems: [{serviceId: first, deployment: RESTART, priority: 2}, {serviceId: second, deployment: RESTART, priority: 1}]")
	id = b.Execute("paused")
	b.WaitFor(id, "the first running", func(task plan.Task) bool { return task.Services[0].State == plan.ItemRunning })
	require.Equal(b.t, http.StatusOK, b.Verb(id, "pause", "{}").Status)
	b.WaitTask(id, plan.TaskPaused)
	return id
}

// The build before this one tells no ID. People may go back to it for as long as the window all the same, also when none of its workers is left and this one's
// have been started again: releases that begin record what it understands.
func TestSoakReleasesRecordWhatABuildWithoutAnIDUnderstands(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	previous := harness.Options{Binary: "slipway-previous", Apart: true, Stack: harness.NewOwnTemporal(t)}
	b := &twoBuilds{Engine: harness.Start(t, previous), t: t}
	before := b.recorded()
	require.NoError(t, b.Processes[1].Stop())
	for range 2 {
		worker := b.Worker(buildOptions(newer))
		b.waitWork(newer)
		require.Equal(t, before, b.recorded())
		require.NoError(t, worker.Stop())
	}
}

// The build before this one doesn't take work by itself. A worker of this build that has just died still counts as there: the last one to end hands the work over all the same.
func TestLongLastWorkerEndsJustAfterAnotherDied(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	previous := harness.Options{Binary: "slipway-previous", Apart: true, Stack: harness.NewOwnTemporal(t)}
	b := &twoBuilds{Engine: harness.Start(t, previous), t: t}
	dies, ends := b.Worker(buildOptions(newer)), b.Worker(buildOptions(newer))
	b.waitWork(newer)
	b.waitHeard(newer, 2)
	dies.Kill()
	require.NoError(t, ends.Stop())
	b.waitWork(upgrade.Unversioned)
	b.recorded()
}

// waitHeard waits until Temporal has heard of so many workers of a build on both queues.
func (b *twoBuilds) waitHeard(id string, n int) {
	b.t.Helper()
	finder := presence.Finder{Temporal: b.Workflows, Namespace: b.TemporalNamespace}
	for _, queue := range []string{catalog.EngineQueue, catalog.PartyQueue(catalog.DefaultParty)} {
		require.Eventually(b.t, func() bool {
			heard := 0
			for _, worker := range finder.Of(b.t.Context(), queue)[queue].Workers {
				if worker.Build == id {
					heard++
				}
			}
			return heard == n
		}, harness.Patience, harness.Tick, "%d workers of %s are heard of on queue %s", n, upgrade.Name(id), queue)
	}
}

// underKill runs a rollout to its end while a worker is killed at a random moment.
func (b *twoBuilds) underKill(victim *pet, random *rand.Rand) {
	b.t.Helper()
	r := begin(b.t, b.Engine, deploymentBy(strategy.StylePartition, harness.Nginx), nil)
	moment := time.Duration(random.Int64N(int64(6 * time.Second)))
	kill := time.AfterFunc(moment, victim.kill)
	defer kill.Stop()
	r.rest(1)
	r.approveAll(1)
	r.endsNew()
	r.watch.RequirePromises(b.t)
}

// pet is a process that is killed again and again, and comes back each time.
type pet struct {
	mu      sync.Mutex
	process *harness.Process
	again   func() *harness.Process
}

func newPet(process *harness.Process, again func() *harness.Process) *pet {
	return &pet{process: process, again: again}
}

func (p *pet) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.process.Kill()
	p.process = p.again()
}

// end has it end in peace.
func (p *pet) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.process.Stop()
}
