package e2e

import (
	"fmt"
	"testing"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// A Deployment's ReplicaSets keep copies of its annotations, and kubectl rollout undo puts them back: what a rollout had saved and has long given back
// must not come to life again.
func TestLongUndoAfterARollout(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	r := begin(t, e, deploymentBy(strategy.StylePartition, harness.NoProvider), nil)
	r.approve(1)
	r.approveAll(2)
	r.endsNew()
	r.Kubectl("rollout", "undo", "deployment/"+r.rollout.Name, "-n", r.Apps)
	r.Kubectl("rollout", "status", "deployment/"+r.rollout.Name, "-n", r.Apps, "--timeout=60s")
	r.PutService("order-"+r.Apps, "", "Deployment/order")
	r.PutPlan("restart-"+r.Apps, fmt.Sprintf("deployPlanItems: [{serviceId: order-%s, deployment: RESTART}]", r.Apps))
	r.WaitTask(r.Execute("restart-"+r.Apps), plan.TaskSucceeded)
	r.StartRollout(r.rollout)
	r.WaitRollout(r.rollout.Name, "the first rest", func(s rollout.Status) bool { return s.CurrentStepState == rollout.StatePaused })
	r.MustVerb(r.rollout.Name, "stop", `{"to":"new"}`)
	r.WaitPhase(r.rollout.Name, rollout.PhaseHealthy)
}
