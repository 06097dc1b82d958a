package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// A stop to frozen ends as Frozen only if this release has changed something: only that is a split of its own.
func TestStopToFrozen_StatusAndActions_ByState(t *testing.T) {
	t.Parallel()
	left := &rollout.Adopted{Style: strategy.StyleCanary, Routings: []strategy.Routing{{Service: "order"}}}
	for _, tc := range []struct {
		reason string
		reach  func(t *testing.T) *world
		frozen bool
		says   string
		does   []string
	}{
		{
			reason: "with new pods there is a split", reach: func(t *testing.T) *world {
				return atApproval(t, strategy.StylePartition)
			},
			frozen: true, says: "the split stays in place", does: []string{"Freeze stable", "record"},
		},
		{
			reason: "before the claim nothing was done", reach: func(t *testing.T) *world {
				return newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, -1)), 10)
			},
			says: "it has changed nothing", does: []string{"record"},
		},
		{
			reason: "while the workload is being claimed nothing is changed yet: the claim is released and nothing " +
				"is left", reach: func(t *testing.T) *world {
				w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, -1)), 10)
				require.Equal(t, ActBegin, w.next().Kind)
				return w
			},
			says: "nothing of it is left", does: []string{"begin", "ReleaseWorkloadControl stable", "record"},
		},
		{
			reason: "a shared TrafficRouting that the rollout waited for is left as well",
			reach:  func(t *testing.T) *world { return holding(t, nil) },
			says:   "nothing of it is left", does: []string{"begin", "shared RouteTrafficToStable",
				"ReleaseWorkloadControl stable", "record"},
		},
		{
			reason: "a rollout that is paused before its first step has only its claim",
			reach:  verbStates["before the first step"],
			says:   "nothing of it is left", does: []string{"begin", "ReleaseWorkloadControl stable", "record"},
		},
		{
			reason: "an earlier release's split that cannot be rolled back is not this one's",
			reach: func(t *testing.T) *world {
				w := adopting(t, left)
				w.next()
				w.fail(failure.Drift, "another client has edited the route")
				w.next()
				return w
			},
			says: "what an earlier release left on Deployment shop/order stays",
			does: []string{"Freeze stable", "record"},
		},
		{
			reason: "an earlier release's split that is found during the stop stays in place",
			reach: func(t *testing.T) *world {
				w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, -1)), 10)
				w.adopted = left
				require.Equal(t, ActBegin, w.next().Kind)
				return w
			},
			says: "what an earlier release left on Deployment shop/order stays",
			does: []string{"begin", "Freeze stable", "record"},
		},
	} {
		w := tc.reach(t)
		seen := len(w.actions)
		outcome, message := w.send(rollout.Command{Verb: rollout.VerbStop, To: rollout.StopToFrozen}, w.now)
		require.Equal(t, audit.Accepted, outcome, "%s: %s", tc.reason, message)
		if !tc.frozen {
			require.NotContains(t, message, "the split stays in place", tc.reason)
		}
		if r := w.m.running; r != nil {
			w.do(*r)
		}
		require.Equal(t, ActClose, w.drive().Kind, tc.reason)
		s := w.m.Status()
		require.Equal(t, rollout.PhaseCancelled, s.Phase, tc.reason)
		require.Equal(t, tc.frozen, s.Frozen, tc.reason)
		require.Contains(t, s.Reason, tc.says, tc.reason)
		does := tc.does
		if does[0] == "begin" && seen > 0 {
			does = does[1:]
		}
		require.Equal(t, does, w.actions[seen:], tc.reason)
	}
}

// adopting returns a rollout that rolls back what an earlier release left.
func adopting(t *testing.T, left *rollout.Adopted) *world {
	w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, -1)), 10)
	w.adopted = left
	w.do(w.next())
	require.Equal(t, stageAdopt, w.m.s.Stage)
	return w
}
