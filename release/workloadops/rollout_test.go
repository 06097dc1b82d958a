package workloadops_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workloadops"
)

// TestRolloutInTheWay leaves a workload alone that carries a rollout's saved state: restarting it would move pods behind the split's back.
func TestRolloutInTheWay(t *testing.T) {
	t.Parallel()
	const dead = "rollout/default/shop/order@run-0"
	for _, op := range []plan.Operation{plan.Start, plan.Stop, plan.Restart} {
		for reason, claim := range map[string]string{"a frozen split has no claim": "", "the rollout that held it has ended without bringing it home": dead} {
			seen := running(3)
			seen.Rollout, seen.Claim = `{"name":"order","workflowId":"rollout/default/shop/order"}`, claim
			req := request(workloadops.KindDeployment, op, plan.Parallel)
			req.TakeOver = dead
			d := workloadops.Decide(req, seen)
			require.Equal(t, workloadops.ActFail, d.Action, "%s: %s", reason, d.Reason)
			require.Equal(t, failure.Refused, d.Failure.Kind, reason)
			require.Contains(t, d.Reason, "in the middle of a rollout (rollout/default/shop/order): finish that rollout, roll it back or stop it", reason)
			require.Contains(t, workloadops.Refuses(req, seen), "in the middle of a rollout", reason)
		}
	}
}
