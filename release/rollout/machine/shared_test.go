package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// holding is a rollout that waits for a TrafficRouting which another release still gives back.
func holding(t *testing.T, change func(*Setup)) *world {
	s := setupOf(strategy.StylePartition, true, aStep("20%", 20, -1), aStep("100%", 100, -1))
	s.Spec.Strategy.TrafficRoutingRef = "edge"
	if change != nil {
		change(&s)
	}
	w := newWorld(t, s, 10)
	w.do(w.next())
	require.Equal(t, ActHold, w.next().Kind)
	return w
}

func TestAWaitForATrafficRoutingCanBeEnded(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		command rollout.Command
		stage   stage
		phase   rollout.Phase
	}{
		{"a rollback need not wait for what it does not take", rollout.Command{Verb: rollout.VerbRollback}, stageFinal, rollout.PhaseRolledBack},
		{"nor need a stop", rollout.Command{Verb: rollout.VerbStop}, stageFinal, rollout.PhaseRolledBack},
		{"nor a stop that leaves everything", rollout.Command{Verb: rollout.VerbStop, To: rollout.StopToFrozen}, stageFinal, rollout.PhaseCancelled},
		{"nor a finish without steps", rollout.Command{Verb: rollout.VerbStop, To: rollout.StopToNew}, stageFinal, rollout.PhaseHealthy},
		{"nor a newer release", rollout.Command{Verb: rollout.VerbSupersede}, stageFinal, rollout.PhaseRolledBack},
	} {
		w := holding(t, nil)
		outcome, message := w.m.Command(tc.command, w.now)
		require.Equal(t, audit.Accepted, outcome, "%s: %s", tc.reason, message)
		require.True(t, w.m.Interrupts(), tc.reason)
		w.m.Stopped()
		require.Equal(t, tc.stage, w.m.s.Stage, tc.reason)
		w.drive()
		require.Equal(t, tc.phase, w.m.Status().Phase, tc.reason)
		require.False(t, w.claimed, tc.reason)
	}
}

func TestAWaitForATrafficRoutingHasADeadline(t *testing.T) {
	t.Parallel()
	const late = "TrafficRouting shop/edge gives its routes back for rollout/default/shop/other"
	w := holding(t, nil)
	require.Equal(t, int64(600), w.m.running.Hold.DeadlineSeconds, "the policy's deadline is that of the wait")
	w.fail(failure.WorkloadFailed, late)
	w.next()
	require.Equal(t, rollout.PhaseFailed, w.m.Status().Phase)
	require.Contains(t, w.m.Status().Reason, late)
	require.Contains(t, w.m.Status().WaitingFor.Message, late)
	w.m.Command(rollout.Command{Verb: rollout.VerbRetry}, w.now)
	again := w.next()
	require.Equal(t, ActHold, again.Kind, "a retry waits once more")
	w.do(again)
	w.drive()
	require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)

	w = holding(t, func(s *Setup) { s.Spec.Policy.OnFailure = strategy.OnFailureRollback })
	w.fail(failure.WorkloadFailed, late)
	w.drive()
	require.Equal(t, rollout.PhaseRolledBack, w.m.Status().Phase, "the policy decides on a wait that was too long")
}
