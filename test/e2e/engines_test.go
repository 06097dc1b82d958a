package e2e

import (
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/harness"
)

// Two engines, each with its own home and Temporal, release the same workloads. The second is refused with the name of
// the first while the first is alive, dead or restarted; once the release of the first has ended, the second may start.
func TestLongSecondEngine_IsRefused_UntilFirstReleaseEnds(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	one, two := harness.Start(t, harness.Options{}), harness.Start(t, harness.Options{})
	t.Run("One", func(t *testing.T) { secondEngineIsRefused(t, one, two) })
	t.Run("Two", func(t *testing.T) { secondEngineIsRefused(t, two, one) })
}

// secondEngineIsRefused starts a release of the first engine and requires that the second cannot touch the workload
// until it ends.
func secondEngineIsRefused(t *testing.T, first, second *harness.Engine) {
	r := startRelease(t, first, deploymentCell(strategy.StylePartition, harness.Nginx), nil)
	r.waitPaused(1)
	holder := workload.ParseHolder(r.claim())
	require.Equal(t, first.Home, holder.Engine.Name, "a claim names its engine, which is called by its namespace")

	other := second.WithT(t)
	other.Apps = r.Apps
	other.PutService("order-"+r.Apps, "", "Deployment/order")
	other.PutPlan("restart-"+r.Apps, "deployPlanItems: [{serviceId: order-"+r.Apps+", deployment: RESTART}]")
	refused := func(when string) {
		t.Helper()
		by := "rollout/default/" + r.Apps + "/order of engine " + first.Home
		answer := other.TryStartRollout(r.rollout)
		require.Equal(t, http.StatusConflict, answer.Status, "%s: %s", when, answer.Body)
		require.Contains(t, answer.Problem().Detail,
			"is held by "+by+": only engine "+first.Home+" can take over its own claims", when)
		answer = other.Call(http.MethodPost, "/api/v1/plans/restart-"+r.Apps+"/execute", "")
		require.Equal(t, http.StatusUnprocessableEntity, answer.Status, "%s: %s", when, answer.Body)
		require.Contains(t, string(answer.Body), "is being released by "+by, when)
		require.Equal(t, holder, workload.ParseHolder(r.claim()), when)
	}
	refused("while it is alive")

	first.Processes[len(first.Processes)-1].Kill()
	refused("while it is dead")
	out, err := exec.Command(r.Binary("slipway"), "repair", r.Apps+"/order", "--to", "stable", "--kubeconfig",
		r.Kubeconfig, "--yes").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "belongs to engine "+first.Home+", not to engine slipway",
		"a repair names whose release it undoes")

	first.Processes = append(first.Processes, first.Dev(harness.Options{}))
	first.WaitReady()
	refused("after it has restarted")
	r.approve(1)
	r.approveAll(2)
	r.requirePromoted()

	next := r.rollout
	next.Image = "app:third"
	other.StartRollout(next)
	other.WaitForApproval("order", 1)
	require.Equal(t, second.Home, workload.ParseHolder(r.claim()).Engine.Name,
		"an ended release blocks no other engine")
	other.MustVerb("order", "rollback", "")
	other.WaitPhase("order", rollout.PhaseRolledBack)
}

// Both engines check the workload before either has claimed it. The claim itself refuses the second one, whose release
// ends without a change.
func TestLongOneOfTwoEnginesReleases_WhenBothStartAtOnce(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	one, two := harness.Shared(t), harness.Start(t, harness.Options{})
	r := prepare(t, one, deploymentCell(strategy.StylePartition, harness.NoProvider), nil)
	other := two.WithT(t)
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
	var waiting, ended []*harness.Engine
	require.Eventually(t, func() bool {
		waiting, ended = nil, nil
		for _, e := range []*harness.Engine{r.Engine, other} {
			a := e.Call(http.MethodGet, "/api/v1/rollouts/"+r.Apps+"/order", "")
			switch {
			case strings.Contains(string(a.Body), `"StepPaused"`):
				waiting = append(waiting, e)
			case a.Status == http.StatusNotFound || strings.Contains(string(a.Body), `"Failed"`):
				ended = append(ended, e)
			}
		}
		return len(waiting) == 1 && len(ended) == 1
	}, harness.Patience, harness.Tick, "one releases, the other has ended")
	require.Equal(t, waiting[0].Home, workload.ParseHolder(r.claim()).Engine.Name)
	if accepted == 2 {
		status := ended[0].Rollout("order")
		require.Contains(t, status.Reason, "of engine "+waiting[0].Home+": only engine "+waiting[0].Home+
			" can take over its own claims")
		require.Contains(t, status.Reason, "nothing was changed")
	}
	waiting[0].MustVerb("order", "rollback", "")
	waiting[0].WaitPhase("order", rollout.PhaseRolledBack)
	r.requireRestored(untouchedEnd)
}
