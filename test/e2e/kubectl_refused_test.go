package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// An approval that is written after a refused jump, and before the object is restored, counts. The second jump's answer
// is shown only after the first one's has been visible for a while: the approval comes meanwhile.
func TestLongKubectlApproval_Counts_RightAfterRefusedJump(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	d := declare(t, e, g, deploymentCell(strategy.StylePartition, harness.NoProvider), nil)
	d.setImage("alice", d.rollout.NewestImage())
	r := d.waitStep(1)
	next := commonStatus(r).NextStepIndex
	for n := 1; n <= 2; n++ {
		if n == 2 {
			d.waitObject("restored", func(r *v1beta1.Rollout) bool { return commonStatus(r).NextStepIndex == next })
		}
		d.patchStatus("bob", map[string]any{"nextStepIndex": 9})
		require.Eventually(t, func() bool { return d.answers(rollout.VerbJump, audit.Refused) == n }, harness.Patience,
			harness.Tick, "jump %d is not refused", n)
	}
	d.watch.MarkPaused(t, 1)
	d.watch.AllowStep(t, 2)
	d.patchStatus("approver", map[string]any{"currentStepState": "StepReady"})
	d.waitStep(2)
	require.Equal(t, 1, d.answers(rollout.VerbApprove, audit.Accepted))
	require.Contains(t, d.history(), "approve by approver (kubectl): accepted")
	require.Equal(t, 2, d.answers(rollout.VerbJump, audit.Refused), "no jump is answered twice")
}

// answers returns how many commands of a kind have got this answer.
func (d *declared) answers(verb rollout.Verb, outcome audit.Outcome) (n int) {
	d.t.Helper()
	for _, e := range d.Rollout(d.rollout.Name).History {
		if e.Verb == verb && e.Outcome == outcome {
			n++
		}
	}
	return n
}
