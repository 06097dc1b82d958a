package e2e

import (
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/test/harness"
)

// TestLongTwoEnginesOnOneCluster has two engines, each with a home and a Temporal of its own, release the same workloads. Whichever comes second is refused with the
// other's name, while that one is alive, dead and coming back; when its release is over, the second one may.
func TestLongTwoEnginesOnOneCluster(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	one, two := harness.Start(t, harness.Options{}), harness.Start(t, harness.Options{})
	t.Run("One", func(t *testing.T) { respects(t, one, two) })
	t.Run("Two", func(t *testing.T) { respects(t, two, one) })
}

// respects has the second engine meet a release of the first.
func respects(t *testing.T, first, second *harness.Engine) {
	r := begin(t, first, deploymentBy(strategy.StylePartition, harness.Nginx), nil)
	r.rest(1)
	holder := workloadops.ParseHolder(r.claim())
	require.Equal(t, first.Home, holder.Engine.Name, "a claim names its engine, which is called by its namespace")

	other := second.In(t)
	other.Apps = r.Apps
	other.PutService("order-"+r.Apps, "", "Deployment/order")
	other.PutPlan("restart-"+r.Apps, "deployPlanItems: [{serviceId: order-"+r.Apps+", deployment: RESTART}]")
	refused := func(when string) {
		t.Helper()
		by := "rollout/default/" + r.Apps + "/order of engine " + first.Home
		answer := other.TryStartRollout(r.rollout)
		require.Equal(t, http.StatusConflict, answer.Status, "%s: %s", when, answer.Body)
		require.Contains(t, answer.Problem().Detail, "is held by "+by+": only engine "+first.Home+" can take over its own claims", when)
		answer = other.Call(http.MethodPost, "/api/v1/plans/restart-"+r.Apps+"/execute", "")
		require.Equal(t, http.StatusUnprocessableEntity, answer.Status, "%s: %s", when, answer.Body)
		require.Contains(t, string(answer.Body), "is being released by "+by, when)
		require.Equal(t, holder, workloadops.ParseHolder(r.claim()), when)
	}
	refused("while it is alive")

	first.Processes[len(first.Processes)-1].Kill()
	refused("while it is dead")
	out, err := exec.Command(r.Binary("slipway"), "repair", r.Apps+"/order", "--to", "stable", "--kubeconfig", r.Kubeconfig, "--yes").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "is one of engine "+first.Home+", not of engine slipway", "a repair names whose release it undoes")

	first.Processes = append(first.Processes, first.Dev(harness.Options{}))
	first.WaitReady()
	refused("when it has come back")
	r.approve(1)
	r.approveAll(2)
	r.endsNew()

	next := r.rollout
	next.Image = "app:third"
	other.StartRollout(next)
	other.WaitRest("order", 1)
	require.Equal(t, second.Home, workloadops.ParseHolder(r.claim()).Engine.Name, "what is over is in nobody's way")
	other.MustVerb("order", "rollback", "")
	other.WaitPhase("order", rollout.PhaseRolledBack)
}

// TestTwoEnginesStartAtOnce: both look before either has claimed. The second to claim is refused by the claim itself, and ends without a change.
func TestLongTwoEnginesStartAtOnce(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	one, two := harness.Shared(t), harness.Start(t, harness.Options{})
	r := prepare(t, one, deploymentBy(strategy.StylePartition, harness.NoProvider), nil)
	other := two.In(t)
	other.Apps = r.Apps
	answers := make(chan harness.Answer, 2)
	for _, e := range []*harness.Engine{r.Engine, other} {
		go func() { answers <- e.TryStartRollout(r.rollout) }()
	}
	accepted := 0
	for range cap(answers) {
		switch a := <-answers; a.Status {
		case http.StatusAccepted:
			accepted++
		case http.StatusConflict:
			require.Contains(t, a.Problem().Detail, " of engine ")
		default:
			require.Failf(t, "an unexpected answer", "%d %s", a.Status, a.Body)
		}
	}
	require.Positive(t, accepted)
	var resting, ended []*harness.Engine
	require.Eventually(t, func() bool {
		resting, ended = nil, nil
		for _, e := range []*harness.Engine{r.Engine, other} {
			a := e.Call(http.MethodGet, "/api/v1/rollouts/"+r.Apps+"/order", "")
			switch {
			case strings.Contains(string(a.Body), `"StepPaused"`):
				resting = append(resting, e)
			case a.Status == http.StatusNotFound || strings.Contains(string(a.Body), `"Failed"`):
				ended = append(ended, e)
			}
		}
		return len(resting) == 1 && len(ended) == 1
	}, harness.Patience, harness.Tick, "one releases, the other has ended")
	require.Equal(t, resting[0].Home, workloadops.ParseHolder(r.claim()).Engine.Name)
	if accepted == 2 {
		status := ended[0].Rollout("order")
		require.Contains(t, status.Reason, "of engine "+resting[0].Home+": only engine "+resting[0].Home+" can take over its own claims")
		require.Contains(t, status.Reason, "nothing was changed")
	}
	resting[0].MustVerb("order", "rollback", "")
	resting[0].WaitPhase("order", rollout.PhaseRolledBack)
	r.requireHome(observerEndUntouched)
}
