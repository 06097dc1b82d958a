package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// `kubectl describe` of a workload shows what releases do to it and where they wait for a user.
func TestWorkloadEvents_DescribeReleases(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.NoProvider), nil)
	described := func(want ...string) {
		t.Helper()
		require.Eventually(t, func() bool {
			text := strings.Join(strings.Fields(r.Kubectl("describe", "deployment", "order", "-n", r.Apps)), " ")
			for _, w := range want {
				if !strings.Contains(text, w) {
					return false
				}
			}
			return true
		}, harness.Patience, harness.Tick, "%s in\n%s", want,
			r.Kubectl("describe", "deployment", "order", "-n", r.Apps))
	}
	id := "rollout/default/" + r.Apps + "/order"
	r.waitPaused(1)
	described("Normal ReleaseBegan", id+" has started", "Normal ReleaseRests", id+": step 1: ")
	r.approveAll(1)
	r.requirePromoted()
	described("Normal ReleaseEnded", id+" has ended: all pods are of the new version")

	bad := r.rollout
	bad.Image = "registry.test/order:bad"
	bad.Policy = map[string]any{"onFailure": "pause", "stepDeadlineSeconds": 2}
	r.StartRollout(bad)
	r.WaitRollout("order", "a failure", func(s rollout.Status) bool { return s.Phase == rollout.PhaseFailed })
	described("Warning WorkloadFailed", id+": Deployment "+r.Apps+"/order")
	require.Equal(t, http.StatusOK, r.RolloutVerb("order", "rollback", "{}").Status)
	r.WaitPhase("order", rollout.PhaseRolledBack)
	described("all pods are of the stable version")

	r.PutService("events-"+r.Apps, "", "Deployment/order")
	r.PutPlan("events-"+r.Apps, "deployPlanItems: [{serviceId: events-"+r.Apps+", deployment: RESTART}]")
	task := r.Execute("events-" + r.Apps)
	require.Equal(t, plan.TaskSucceeded, r.WaitTask(task, plan.TaskSucceeded, plan.TaskFailed).State)
	described("Normal ReleaseEnded", "task/"+task)
}
