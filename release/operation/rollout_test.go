package operation_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workload"
)

// A workload with a rollout's saved state is not changed: a restart would move pods that the rollout's split controls.
func TestDecide_Refuses_WhenRolloutIsUnfinished(t *testing.T) {
	t.Parallel()
	const dead = "rollout/default/shop/order@run-0"
	for _, op := range []plan.Operation{plan.Start, plan.Stop, plan.Restart} {
		for reason, claim := range map[string]string{"a frozen split has no claim": "",
			"the rollout that held it has ended without restoring it": dead} {
			seen := running(3)
			seen.Rollout, seen.Claim = `{"name":"order","workflowId":"rollout/default/shop/order"}`, claim
			req := request(operation.KindDeployment, op, plan.Parallel)
			req.TakeOver = dead
			d := operation.Decide(req, seen)
			require.Equal(t, workload.ActFail, d.Action, "%s: %s", reason, d.Reason)
			require.Equal(t, failure.Refused, d.Failure.Kind, reason)
			require.Contains(t, d.Reason, "in the middle of a rollout (rollout/default/shop/order): finish that "+
				"rollout, roll it back or stop it", reason)
			require.Contains(t, operation.RefusalReason(req, seen), "in the middle of a rollout", reason)
		}
	}
}
