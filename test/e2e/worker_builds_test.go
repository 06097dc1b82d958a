package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/upgrade"
	"slipway.io/slipway/test/harness"
)

// twoBuilds is an engine whose workers have two build IDs: the same program, with the ID set by the environment.
type twoBuilds struct {
	*harness.Engine
	t *testing.T
}

// older and newer are the two build IDs.
const older, newer = "older", "newer"

func buildOptions(id string) harness.Options {
	return harness.Options{Binary: "slipway-failpoints", SeparateWorker: true,
		WorkerEnv: []string{"SLIPWAY_TEST_BUILD=" + id}}
}

// startBuild starts an engine whose worker has this build ID, on its own Temporal.
func startBuild(t *testing.T, id string) *twoBuilds {
	t.Helper()
	o := buildOptions(id)
	o.Stack = harness.NewOwnTemporal(t)
	return &twoBuilds{Engine: harness.Start(t, o), t: t}
}

// worker starts a worker with this build ID and waits until it gets the work.
func (b *twoBuilds) worker(id string, args ...string) *harness.Process {
	b.t.Helper()
	o := buildOptions(id)
	o.Args = args
	process := b.Worker(o)
	b.waitWork(id)
	return process
}

// waitWork waits until a build gets the work on both queues.
func (b *twoBuilds) waitWork(id string) {
	b.t.Helper()
	for _, queue := range []string{catalog.EngineQueue, catalog.PartyQueue(catalog.DefaultParty)} {
		require.Eventually(b.t, func() bool {
			return b.currentBuild(queue) == id
		}, harness.Patience, harness.Tick, "%s gets the work on queue %s", upgrade.Name(id), queue)
	}
}

// currentBuild returns the build ID that gets the work of the queue.
func (b *twoBuilds) currentBuild(queue string) string {
	described, err := b.Workflows.WorkflowService().DescribeTaskQueue(b.t.Context(),
		&workflowservice.DescribeTaskQueueRequest{
			Namespace: b.TemporalNamespace, TaskQueue: &taskqueuepb.TaskQueue{Name: queue},
			TaskQueueType: enumspb.TASK_QUEUE_TYPE_ACTIVITY})
	require.NoError(b.t, err)
	return described.GetVersioningInfo().GetCurrentDeploymentVersion().GetBuildId()
}

// workedOn returns the build IDs that executed a workflow, in order.
func (b *twoBuilds) workedOn(workflowID string) (builds []string) {
	for _, event := range b.History(workflowID) {
		if by := event.GetWorkflowTaskCompletedEventAttributes().GetDeploymentVersion().GetBuildId(); by != "" &&
			(len(builds) == 0 || builds[len(builds)-1] != by) {
			builds = append(builds, by)
		}
	}
	return builds
}

// A canary continues across builds: the workers are upgraded, killed, restarted and downgraded while it waits. Each
// build continues where the other one stopped.
func TestLongCanary_ContinuesAcrossBuilds(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	b := startBuild(t, older)
	r := startRelease(t, b.Engine, deploymentCell(strategy.StyleCanary, harness.Nginx), nil)
	r.waitPaused(1)

	first := b.worker(newer)
	r.approve(1)
	r.waitPaused(2)
	require.Equal(t, []string{older, newer}, b.workedOn(r.RolloutID(r.rollout.Name)),
		"an upgrade takes effect while workers of the old build still run")

	first.Kill()
	b.waitWork(older)
	again := b.worker(newer)
	require.Equal(t, newer, b.currentBuild(catalog.EngineQueue),
		"the newer build gets the work again after its restart")
	require.NoError(t, again.Stop())
	require.Equal(t, older, b.currentBuild(catalog.EngineQueue),
		"the last worker of a build hands the work over before it ends")
	r.approve(2)
	r.approveAll(3)
	r.requirePromoted()
	require.Equal(t, []string{older, newer, older}, b.workedOn(r.RolloutID(r.rollout.Name)))
	r.watch.RequirePromises(t)
}

// Without worker versioning workers take work without a build ID, also if versioned workers ran before.
func TestLongWorkers_TakeWork_WithoutWorkerVersioning(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	b := startBuild(t, older)
	require.NoError(t, b.Processes[1].Stop())
	b.worker(upgrade.Unversioned, "--worker-versioning=false")
	b.WaitReady()
	require.Equal(t, http.StatusOK, b.Call(http.MethodGet, "/readyz", "").Status)
	require.Empty(t, b.workedOn(b.runRollout()))
}

// runRollout runs a rollout to its end and returns the ID of its workflow.
func (b *twoBuilds) runRollout() (workflowID string) {
	b.t.Helper()
	r := startRelease(b.t, b.Engine, deploymentCell(strategy.StylePartition, harness.Nginx), nil)
	r.waitPaused(1)
	r.approveAll(1)
	r.requirePromoted()
	return r.RolloutID(r.rollout.Name)
}
