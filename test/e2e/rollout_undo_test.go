package e2e

import (
	"fmt"
	"testing"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// A Deployment's ReplicaSets keep copies of its annotations, and kubectl rollout undo restores them. The saved state of
// a rollout that has already restored it must not take effect again.
func TestLongKubectlUndoAfterRollout_DoesNotReviveSavedState(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.NoProvider), nil)
	r.approve(1)
	r.approveAll(2)
	r.requirePromoted()
	r.Kubectl("rollout", "undo", "deployment/"+r.rollout.Name, "-n", r.Apps)
	r.Kubectl("rollout", "status", "deployment/"+r.rollout.Name, "-n", r.Apps, "--timeout=60s")
	r.PutService("order-"+r.Apps, "", "Deployment/order")
	r.PutPlan("restart-"+r.Apps, fmt.Sprintf("deployPlanItems: [{serviceId: order-%s, deployment: RESTART}]", r.Apps))
	r.WaitTask(r.Execute("restart-"+r.Apps), plan.TaskSucceeded)
	r.StartRollout(r.rollout)
	r.WaitRollout(r.rollout.Name, "the first pause", func(s rollout.Status) bool {
		return s.CurrentStepState == rollout.StatePaused
	})
	r.MustVerb(r.rollout.Name, "stop", `{"to":"new"}`)
	r.WaitPhase(r.rollout.Name, rollout.PhaseHealthy)
}
