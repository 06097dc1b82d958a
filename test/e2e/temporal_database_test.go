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

// databaseAway is for how long PostgreSQL is stopped.
const databaseAway = time.Minute

// Temporal's database is stopped for a minute, and its disk is full: commands are answered 503 meanwhile, nothing of what waits is lost, and no process of ours has to be started again.
func TestLongTemporalsDatabaseAwayAndFull(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	x := compose.StartTemporalOnSmallDisk(t, smallDisk)
	e := harness.Start(t, harness.Options{Apart: true, Stack: &x.Stack})
	r := begin(t, e, deploymentBy(strategy.StyleCanary, harness.Nginx), nil)
	status := r.rest(1)

	x.StopDatabase()
	back := time.NewTimer(databaseAway)
	requireRefused(t, r, status)
	require.Equal(t, http.StatusServiceUnavailable, r.Call(http.MethodGet, "/readyz", "").Status)
	<-back.C
	x.StartDatabase()
	r.approve(1)
	status = r.rest(2)

	free := x.FillDisk()
	requireRefused(t, r, status)
	free()
	x.StartDatabase()
	r.approve(2)
	r.approveAll(3)
	r.endsNew()
	r.watch.RequirePromises(t)
	for _, process := range e.Processes {
		require.False(t, process.Ended(), "server and worker outlive Temporal's database")
	}
}

// smallDisk is the size of the database's disk, in MiB: room for its log, of 16 MiB each, and Temporal's tables.
const smallDisk = 400

func requireRefused(t *testing.T, r *release, status rollout.Status) {
	t.Helper()
	require.Eventually(t, func() bool {
		a := r.RolloutVerb(r.rollout.Name, "approve", `{"actor":"ann","step":99,"gate":"`+status.WaitingFor.Gate+`"}`)
		return a.Status == http.StatusServiceUnavailable
	}, harness.Patience, harness.Tick, "a command is answered 503")
	require.Equal(t, http.StatusOK, r.Call(http.MethodGet, "/api/v1/plans", "").Status, "what the home cluster keeps can be read")
}

// Temporal's database is put back to what it was some time ago, and servers and workers are started again. A release that was further by then shows the earlier step while its workload
// stays where it is, and goes on when it is approved again. One that Temporal knows nothing of any more holds its workload until the next release of it takes
// over, which first gives back what was borrowed.
func TestLongTemporalsDatabaseRestored(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	x := compose.StartTemporal(t)
	e := harness.Start(t, harness.Options{Apart: true, Stack: &x.Stack})
	released := func() *release {
		r := place(t, e, deploymentBy(strategy.StylePartition, harness.Nginx), nil)
		r.StartRollout(r.rollout)
		return r
	}
	toTheEnd := func(r *release) {
		for step := 1; step < len(r.rollout.Strategy.Steps); step++ {
			r.Approve(r.rollout.Name, r.WaitRest(r.rollout.Name, step))
		}
		r.WaitPhase(r.rollout.Name, rollout.PhaseHealthy)
		require.Empty(t, r.claim())
	}
	known := released()
	first := known.WaitRest(known.rollout.Name, 1)
	over := released()
	over.WaitRest(over.rollout.Name, 1)
	dump := t.TempDir()
	x.Dump(dump)
	toTheEnd(over)
	known.Approve(known.rollout.Name, first)
	known.WaitRest(known.rollout.Name, 2)
	forgotten := released()
	forgotten.WaitRest(forgotten.rollout.Name, 1)

	x.KillServer()
	x.Restore(dump)
	x.StartServer()
	for _, process := range e.Processes { // they remember what Temporal has forgotten
		require.NoError(t, process.Stop())
	}
	o := harness.Options{Stack: &x.Stack}
	e.Server(o)
	e.Worker(o)
	e.WaitReady()
	status := known.WaitRest(known.rollout.Name, 1)
	updated, _, _ := unstructured.NestedInt64(known.object().Object, "status", "updatedReplicas")
	require.EqualValues(t, 2, updated, "the pods of the second step stay")
	require.Equal(t, first.WaitingFor.Gate, status.WaitingFor.Gate)
	toTheEnd(known)
	over.WaitRest(over.rollout.Name, 1)
	over.MustVerb(over.rollout.Name, "stop", `{"to":"frozen","reason":"it is over"}`)
	over.WaitPhase(over.rollout.Name, rollout.PhaseCancelled)
	require.Equal(t, over.rollout.NewestImage(), imageOf(t, over.Engine, over.rollout.Name), "it stays at its end")
	require.Equal(t, harness.SubjectSize, over.ReadyPods(over.rollout.Name))
	require.NotEmpty(t, forgotten.claim())
	forgotten.StartRollout(forgotten.rollout)
	toTheEnd(forgotten)
}
