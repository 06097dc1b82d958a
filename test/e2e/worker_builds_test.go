package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/upgrade"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/workflows"
)

// twoBuilds is an engine whose workers are of two builds: the same program, which says that it is another one.
type twoBuilds struct {
	*harness.Engine
	t *testing.T
}

// older and newer are their IDs.
var older, newer = upgrade.ID("older", workflows.HistoryLevel), upgrade.ID("newer", workflows.HistoryLevel)

func buildOptions(id string) harness.Options {
	return harness.Options{Binary: "slipway-failpoints", Apart: true, WorkerEnv: []string{"SLIPWAY_TEST_BUILD=" + id}}
}

// startBuild is an engine whose worker is of this build, on a Temporal of its own.
func startBuild(t *testing.T, id string) *twoBuilds {
	t.Helper()
	o := buildOptions(id)
	o.Stack = harness.NewOwnTemporal(t)
	return &twoBuilds{Engine: harness.Start(t, o), t: t}
}

// worker starts one of a build, which is to take the work.
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
		require.Eventually(b.t, func() bool { return b.getsWork(queue) == id }, harness.Patience, harness.Tick, "%s gets the work on queue %s", upgrade.Name(id), queue)
	}
}

func (b *twoBuilds) getsWork(queue string) string {
	described, err := b.Workflows.WorkflowService().DescribeTaskQueue(b.t.Context(), &workflowservice.DescribeTaskQueueRequest{
		Namespace: b.TemporalNamespace, TaskQueue: &taskqueuepb.TaskQueue{Name: queue}, TaskQueueType: enumspb.TASK_QUEUE_TYPE_ACTIVITY})
	require.NoError(b.t, err)
	return described.GetVersioningInfo().GetCurrentDeploymentVersion().GetBuildId()
}

// workedOn are the builds that worked on a workflow, in order.
func (b *twoBuilds) workedOn(workflowID string) (builds []string) {
	for _, event := range b.History(workflowID) {
		if by := event.GetWorkflowTaskCompletedEventAttributes().GetDeploymentVersion().GetBuildId(); by != "" && (len(builds) == 0 || builds[len(builds)-1] != by) {
			builds = append(builds, by)
		}
	}
	return builds
}

// A canary waits while the workers are replaced by those of a newer build, while those are killed, come back, and are gone back from. Each build goes on where the other one stopped.
func TestLongCanaryGoesFromBuildToBuild(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	b := startBuild(t, older)
	r := begin(t, b.Engine, deploymentBy(strategy.StyleCanary, harness.Nginx), nil)
	r.rest(1)

	first := b.worker(newer)
	r.approve(1)
	r.rest(2)
	require.Equal(t, []string{older, newer}, b.workedOn(r.RolloutID(r.rollout.Name)), "an upgrade takes effect while workers of the old build still run")

	first.Kill()
	b.waitWork(older)
	again := b.worker(newer)
	require.Equal(t, newer, b.getsWork(catalog.EngineQueue), "a build that comes back is still the newer one")
	require.NoError(t, again.Stop())
	require.Equal(t, older, b.getsWork(catalog.EngineQueue), "the last worker of a build hands the work over before it ends")
	r.approve(2)
	r.approveAll(3)
	r.endsNew()
	require.Equal(t, []string{older, newer, older}, b.workedOn(r.RolloutID(r.rollout.Name)))
	r.watch.RequirePromises(t)
}

// recorded is the version of the loop that a canary records, which begins and ends now.
func (b *twoBuilds) recorded() int {
	b.t.Helper()
	r := begin(b.t, b.Engine, deploymentBy(strategy.StylePartition, harness.Nginx), nil)
	r.rest(1)
	r.approveAll(1)
	r.endsNew()
	return loopVersion(b.t, r.History(r.RolloutID(r.rollout.Name)))
}

// While workers run that replay less than this build records, and for as long as people may go back to them, releases record no more than those understand.
func TestLongReleasesRecordWhatTheBuildOfBeforeUnderstands(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	const understood = 2
	before := upgrade.ID("before", understood)
	b := startBuild(t, before)
	old := b.Processes[1]
	current := b.worker(newer)
	require.Equal(t, understood, b.recorded(), "the old build runs and could get the release")
	require.NoError(t, old.Stop())
	require.NoError(t, current.Stop())
	current = b.worker(newer)
	require.Equal(t, understood, b.recorded(), "people may go back to the old build")
	require.NoError(t, current.Stop())
	b.worker(newer, "--rollback-window=1s")
	require.Greater(t, b.recorded(), understood, "the time to go back is over")
}

// loopVersion is the version of the loop that a history goes by.
func loopVersion(t *testing.T, events []*historypb.HistoryEvent) (version int) {
	t.Helper()
	for _, event := range events {
		if marker := event.GetMarkerRecordedEventAttributes(); marker.GetMarkerName() == "Version" {
			require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(marker.GetDetails()["version"], &version))
			return version
		}
	}
	require.Fail(t, "the history has no version")
	return 0
}

// Without versioning workers take work as they always did, also where workers that told their build were before.
func TestLongWithoutWorkerVersioning(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	b := startBuild(t, older)
	require.NoError(t, b.Processes[1].Stop())
	b.worker(upgrade.Unversioned, "--worker-versioning=false")
	b.WaitReady()
	r := begin(t, b.Engine, deploymentBy(strategy.StylePartition, harness.Nginx), nil)
	r.rest(1)
	require.Equal(t, http.StatusOK, b.Call(http.MethodGet, "/readyz", "").Status)
	r.approveAll(1)
	r.endsNew()
	require.Empty(t, b.workedOn(r.RolloutID(r.rollout.Name)))
}
