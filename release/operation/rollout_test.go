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

// Another client has brought back what an ended release had left: it is removed, with no restore of what it names, and
// then the operation begins. An operation that has held the claim itself, or has a result, does not begin again.
func TestDecide_RemovesCopyOfEndedRelease(t *testing.T) {
	t.Parallel()
	const ended = "rollout/default/shop/order@run-0"
	for reason, claim := range map[string]string{"it had been left frozen": "", "it was claimed": ended} {
		seen := running(3)
		seen.Claim, seen.Copied = claim, true
		req := request(operation.KindDeployment, plan.Restart, plan.Parallel)
		require.Empty(t, operation.RefusalReason(req, seen), reason)
		d := operation.Decide(req, seen)
		require.Equal(t, workload.ActWrite, d.Action, "%s: %s", reason, d.Reason)
		require.Equal(t, claim, d.Write.ExpectedClaim, reason)
		require.Equal(t, ourClaim, d.Write.Claim, reason)
		require.Subset(t, d.Write.Remove, []string{workload.AnnotationRollout, "slipway.io/recover"}, reason)
		require.NotContains(t, d.Write.Remove, workload.AnnotationOriginal, reason)
		require.Empty(t, d.Write.Settings, "what the client wrote is left")

		saved, err := operation.ParseOriginal(d.Write.Annotations[workload.AnnotationOriginal], borrowable)
		require.NoError(t, err)
		next := running(3)
		next.Claim, next.Original = ourClaim, saved
		require.Equal(t, "begin", operation.Decide(req, next).Write.Step, reason)

		held := seen
		held.Held = true
		require.Equal(t, failure.ClaimLost, operation.Decide(req, held).Failure.Kind, reason)
		done := held
		done.Ending = &workload.Ending{Result: &workload.Result{Message: "restarted"}}
		require.Equal(t, workload.ActDone, operation.Decide(req, done).Action, reason)
	}
}
