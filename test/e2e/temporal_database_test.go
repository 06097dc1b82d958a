package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/compose"
	"slipway.io/slipway/test/harness"
)

// databaseDowntime is the time for which PostgreSQL is stopped.
const databaseDowntime = time.Minute

// Temporal's database is stopped for a minute, and later its disk is full. Meanwhile verbs are answered with 503. The
// waiting release continues afterwards, and neither server nor worker needs a restart.
func TestLongReleaseContinues_WhenTemporalDatabaseWasDownOrFull(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	x := compose.StartTemporalOnSmallDisk(t, smallDisk)
	e := harness.Start(t, harness.Options{SeparateWorker: true, Stack: &x.Stack})
	r := startRelease(t, e, deploymentCell(strategy.StyleCanary, harness.Nginx), nil)
	status := r.waitPaused(1)

	x.StopDatabase()
	downtime := time.NewTimer(databaseDowntime)
	requireRefused(t, r, status)
	require.Equal(t, http.StatusServiceUnavailable, r.Call(http.MethodGet, "/readyz", "").Status)
	<-downtime.C
	x.StartDatabase()
	r.approve(1)
	status = r.waitPaused(2)

	free := x.FillDisk()
	requireRefused(t, r, status)
	free()
	x.StartDatabase()
	r.approve(2)
	r.approveAll(3)
	r.requirePromoted()
	r.watch.RequirePromises(t)
	for _, process := range e.Processes {
		require.False(t, process.Ended(), "server and worker survive the outage of Temporal's database")
	}
}

// smallDisk is the size of the database's disk in MiB: enough for its log files of 16 MiB each and Temporal's tables.
const smallDisk = 400

func requireRefused(t *testing.T, r *release, status rollout.Status) {
	t.Helper()
	require.Eventually(t, func() bool {
		a := r.RolloutVerb(r.rollout.Name, "approve", `{"actor":"ann","step":99,"gate":"`+status.WaitingFor.Gate+`"}`)
		return a.Status == http.StatusServiceUnavailable
	}, harness.Patience, harness.Tick, "a verb is answered with 503")
	require.Equal(t, http.StatusOK, r.Call(http.MethodGet, "/api/v1/plans", "").Status,
		"objects on the home cluster can be read")
}

// Temporal's database is restored from an older backup, and server and worker are restarted. A release that had
// advanced since the backup shows the earlier step while its workload stays unchanged, and continues when it is
// approved again. A release that is missing in the backup keeps its claim until the next release of the workload takes
// over, which first restores what was borrowed.
func TestLongReleasesContinue_WhenTemporalDatabaseIsRestoredFromBackup(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	x := compose.StartTemporal(t)
	e := harness.Start(t, harness.Options{SeparateWorker: true, Stack: &x.Stack})
	startRelease := func() *release {
		r := prepareUnobserved(t, e, deploymentCell(strategy.StylePartition, harness.Nginx), nil)
		r.StartRollout(r.rollout)
		return r
	}
	toTheEnd := func(r *release) {
		for step := 1; step < len(r.rollout.Strategy.Steps); step++ {
			r.Approve(r.rollout.Name, r.WaitForApproval(r.rollout.Name, step))
		}
		r.WaitPhase(r.rollout.Name, rollout.PhaseHealthy)
		require.Empty(t, r.claim())
	}
	known := startRelease()
	first := known.WaitForApproval(known.rollout.Name, 1)
	over := startRelease()
	over.WaitForApproval(over.rollout.Name, 1)
	dump := t.TempDir()
	x.Dump(dump)
	toTheEnd(over)
	known.Approve(known.rollout.Name, first)
	known.WaitForApproval(known.rollout.Name, 2)
	forgotten := startRelease()
	forgotten.WaitForApproval(forgotten.rollout.Name, 1)

	x.KillServer()
	x.Restore(dump)
	x.StartServer()
	for _, process := range e.Processes { // they have cached workflow state that the restored Temporal does not have
		require.NoError(t, process.Stop())
	}
	o := harness.Options{Stack: &x.Stack}
	e.Server(o)
	e.Worker(o)
	e.WaitReady()
	status := known.WaitForApproval(known.rollout.Name, 1)
	updated, _, _ := unstructured.NestedInt64(known.object().Object, "status", "updatedReplicas")
	require.EqualValues(t, 2, updated, "the pods of the second step stay")
	require.Equal(t, first.WaitingFor.Gate, status.WaitingFor.Gate)
	toTheEnd(known)
	over.WaitForApproval(over.rollout.Name, 1)
	over.MustVerb(over.rollout.Name, "stop", `{"to":"frozen","reason":"it is over"}`)
	over.WaitPhase(over.rollout.Name, rollout.PhaseCancelled)
	require.Equal(t, over.rollout.NewestImage(), imageOf(t, over.Engine, over.rollout.Name),
		"the workload stays at the new version")
	require.Equal(t, harness.SubjectSize, over.ReadyPods(over.rollout.Name))
	require.NotEmpty(t, forgotten.claim())
	forgotten.StartRollout(forgotten.rollout)
	toTheEnd(forgotten)
}
