package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// What was borrowed beside a workload is given back when the workload itself was deleted: its autoscaler may be waiting for the next one of its name.
func TestAnAutoscalerOutlivesItsWorkload(t *testing.T) {
	t.Parallel()
	gone := func(w *world) {
		w.fail(failure.Gone, "the workload was deleted")
		require.Equal(t, ActRest, w.next().Kind)
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
			reason: "its traffic is given back first", reach: func() *world {
				w := resting(t, strategy.StyleBlueGreen)
				w.m.Observed(rollout.Observed{What: "edited"}, w.now)
				require.Equal(t, ActMove, w.next().Kind)
				return w
			},
			does: []string{"RestoreStableService", "RouteTrafficToStable", "RemoveCanaryService", "RestoreAutoscalers stable", "record"},
		},
		{
			reason: "an earlier release pinned it, whose remains were being brought home", reach: func() *world {
				w := adopting(t, &rollout.Adopted{Style: strategy.StyleBlueGreen})
				require.Equal(t, ActFinish, w.next().Kind)
				return w
			},
			does: []string{"RestoreStableService", "RouteTrafficToStable", "RemoveCanaryService", "RestoreAutoscalers stable", "record"},
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
		gone(w)
		seen := len(w.actions)
		outcome, message := w.m.Command(rollout.Command{Verb: rollout.VerbStop}, w.now)
		require.Equal(t, audit.Accepted, outcome, "%s: %s", tc.reason, message)
		size := w.m.Status().Replicas
		require.Equal(t, ActClose, w.drive().Kind, tc.reason)
		require.Equal(t, tc.does, w.actions[seen:], tc.reason)
		require.Equal(t, rollout.PhaseCancelled, w.m.Status().Phase, tc.reason)
		require.Equal(t, size, w.m.Status().Replicas, "%s: the last numbers that are known stay", tc.reason)
	}
}
