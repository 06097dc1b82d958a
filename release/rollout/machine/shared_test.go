package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// holding returns a rollout that waits for a TrafficRouting whose routes another release is still restoring.
func holding(t *testing.T, change func(*Setup)) *world {
	s := setupOf(strategy.StylePartition, true, aStep("20%", 20, -1), aStep("100%", 100, -1))
	s.Spec.Strategy.TrafficRoutingRef = "edge"
	if change != nil {
		change(&s)
	}
	w := newWorld(t, s, 10)
	w.do(w.next())
	require.Equal(t, ActJoinTraffic, w.next().Kind)
	return w
}

func TestJoinSharedTraffic_IsInterrupted_ByEndingCommand(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		command rollout.Command
		stage   stage
		phase   rollout.Phase
	}{
		{"a rollback does not wait for a TrafficRouting that it does not need",
			rollout.Command{Verb: rollout.VerbRollback}, stageFinal, rollout.PhaseRolledBack},
		{"a stop", rollout.Command{Verb: rollout.VerbStop}, stageFinal, rollout.PhaseRolledBack},
		{"a stop to frozen", rollout.Command{Verb: rollout.VerbStop, To: rollout.StopToFrozen}, stageFinal,
			rollout.PhaseCancelled},
		{"a stop to new", rollout.Command{Verb: rollout.VerbStop, To: rollout.StopToNew}, stageFinal,
			rollout.PhaseHealthy},
		{"a newer release", rollout.Command{Verb: rollout.VerbSupersede}, stageFinal, rollout.PhaseRolledBack},
	} {
		w := holding(t, nil)
		outcome, message := w.send(tc.command, w.now)
		require.Equal(t, audit.Accepted, outcome, "%s: %s", tc.reason, message)
		require.Equal(t, tc.stage, w.m.s.Stage, tc.reason)
		w.drive()
		require.Equal(t, tc.phase, w.m.Status().Phase, tc.reason)
		require.False(t, w.claimed, tc.reason)
	}
}

func TestJoinSharedTraffic_Fails_AfterDeadline(t *testing.T) {
	t.Parallel()
	const late = "TrafficRouting shop/edge is restoring its routes for rollout/default/shop/other"
	w := holding(t, nil)
	require.Equal(t, int64(600), w.m.running.Hold.DeadlineSeconds, "the wait has the policy's step deadline")
	w.fail(failure.WorkloadFailed, late)
	w.next()
	require.Equal(t, rollout.PhaseFailed, w.m.Status().Phase)
	require.Contains(t, w.m.Status().Reason, late)
	require.Contains(t, w.m.Status().WaitingFor.Message, late)
	w.send(rollout.Command{Verb: rollout.VerbRetry}, w.now)
	again := w.next()
	require.Equal(t, ActJoinTraffic, again.Kind, "a retry waits again")
	w.do(again)
	w.drive()
	require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)

	w = holding(t, func(s *Setup) { s.Spec.Policy.OnFailure = strategy.OnFailureRollback })
	w.fail(failure.WorkloadFailed, late)
	w.drive()
	require.Equal(t, rollout.PhaseRolledBack, w.m.Status().Phase, "the policy applies to a wait that took too long")
}
