package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// While a step waits, its reason names the routes that cannot express it; the next step's does not, unless it leaves
// one out, too. Only releases of Rollout objects leave routes out.
func TestWait_NamesRoutesThatAreLeftOut(t *testing.T) {
	t.Parallel()
	const left = "Ingress shop/web sends the new version nothing: it cannot compare query parameters"
	for _, declared := range []bool{true, false} {
		setup := setupOf(strategy.StyleCanary, true, aStep("20%", 20, -1), aStep("50%", 50, -1))
		if declared {
			setup.Spec.Change = strategy.Change{Declared: &strategy.Declared{Template: "digest"}}
		}
		w := newWorld(t, setup, 10)
		for step := 1; step <= 2; step++ {
			a := w.next()
			for ; a.Kind != ActRoute || a.Route.Action != rollout.RouteEnsure; a = w.next() {
				if a.Kind == ActWait {
					w.now = *a.Until // a grace period
					continue
				}
				w.do(a)
			}
			require.Equal(t, declared, a.Route.LeaveOut)
			result := w.perform(a)
			if step == 1 {
				result.Route.LeftOut = []string{left}
			}
			w.m.Done(result, w.now)
			w.drive()
			require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)
			if step == 1 {
				require.Contains(t, w.m.Status().Reason, "step 1 of 2 is done: waiting for approval. "+left)
				require.Equal(t, []string{left}, w.m.Status().Traffic.LeftOut)
			} else {
				require.NotContains(t, w.m.Status().Reason, left)
			}
			w.send(rollout.Command{Verb: rollout.VerbApprove}, w.now)
		}
	}
}
