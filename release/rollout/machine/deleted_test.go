package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// When the workload was deleted, objects borrowed in addition to it are still restored: its autoscaler may wait for the
// next workload of that name.
func TestStop_RestoresAutoscalers_WhenWorkloadDeleted(t *testing.T) {
	t.Parallel()
	deleted := func(w *world) {
		w.fail(failure.Gone, "the workload was deleted")
		require.Equal(t, ActWait, w.next().Kind)
	}
	for _, tc := range []struct {
		reason string
		reach  func() *world
		does   []string
	}{
		{
			reason: "blue-green pins an autoscaler", reach: func() *world {
				w := newWorld(t, setupOf(strategy.StyleBlueGreen, false, aStep("50%", -1, -1)), 10)
				w.do(w.next())
				require.Equal(t, ActMove, w.next().Kind)
				return w
			},
			does: []string{"RestoreAutoscalers stable", "record"},
		},
		{
			reason: "its traffic is restored first", reach: func() *world {
				w := atApproval(t, strategy.StyleBlueGreen)
				w.hint(rollout.Observed{What: "edited"}, w.now)
				require.Equal(t, ActMove, w.next().Kind)
				return w
			},
			does: []string{"RestoreStableService", "RouteTrafficToStable", "RemoveCanaryService",
				"RestoreAutoscalers stable", "record"},
		},
		{
			reason: "an earlier release pinned it, and its remains were being rolled back", reach: func() *world {
				w := adopting(t, &rollout.Adopted{Style: strategy.StyleBlueGreen})
				require.Equal(t, ActFinish, w.next().Kind)
				return w
			},
			does: []string{"RestoreStableService", "RouteTrafficToStable", "RemoveCanaryService",
				"RestoreAutoscalers stable", "record"},
		},
		{
			reason: "no other style pins one", reach: func() *world {
				w := newWorld(t, setupOf(strategy.StylePartition, false, aStep("50%", -1, -1)), 10)
				w.do(w.next())
				require.Equal(t, ActMove, w.next().Kind)
				return w
			},
			does: []string{"record"},
		},
	} {
		w := tc.reach()
		deleted(w)
		seen := len(w.actions)
		outcome, message := w.send(rollout.Command{Verb: rollout.VerbStop}, w.now)
		require.Equal(t, audit.Accepted, outcome, "%s: %s", tc.reason, message)
		size := w.m.Status().Replicas
		require.Equal(t, ActClose, w.drive().Kind, tc.reason)
		require.Equal(t, tc.does, w.actions[seen:], tc.reason)
		require.Equal(t, rollout.PhaseCancelled, w.m.Status().Phase, tc.reason)
		require.Equal(t, size, w.m.Status().Replicas, "%s: the last known numbers are kept", tc.reason)
	}
}
