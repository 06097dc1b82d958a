package machine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// routing is a rollout whose first step's pods are there, and whose routes are being made.
func routing(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, setupOf(strategy.StyleBlueGreen, true, aStep("50%", 20, -1), aStep("100%", 100, -1)), 10)
	a := w.acts()
	for ; a.Kind != ActRoute || a.Route.Action != rollout.RouteEnsure; a = w.acts() {
		w.do(a)
	}
	return w
}

// Routes wait for ready pods. Somebody's edit takes those away: then it is the pods that are looked at.
func TestPodsAreLookedAtBeforeTheyAreRoutedTo(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason   string
		observed rollout.Observed
		looks    bool
	}{
		{"an edited template brings other pods", rollout.Observed{What: "edited"}, true},
		{"a workload that was scaled needs other numbers", rollout.Observed{What: "scaled"}, true},
		{"routes are being made anyway", theirRoute, false},
	} {
		w := routing(t)
		w.m.Observed(tc.observed, w.now)
		require.Equal(t, tc.looks, w.m.Interrupts(), tc.reason)
		if !tc.looks {
			continue
		}
		w.m.Stopped()
		look := w.acts()
		require.Equal(t, ActMove, look.Kind, tc.reason)
		require.True(t, look.Move.Look, tc.reason)
		w.do(look)
		require.Equal(t, rollout.RouteEnsure, w.acts().Route.Action, "%s: then they are routed to", tc.reason)
	}
}

// A hint that comes in between, when the pods are there and nothing is being carried out, has them looked at as well.
func TestASizeThatChangedBeforeTheRoutesIsLookedAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StyleCanary, true, aStep("50%", 20, -1), aStep("100%", 100, -1)), 10)
	a := w.acts()
	for ; a.Kind != ActMove; a = w.acts() {
		w.do(a)
	}
	w.do(a)
	w.size, w.actions = 20, nil
	w.m.Observed(rollout.Observed{What: "scaled"}, w.now)
	w.drive()
	require.Equal(t, "[move 50% EnsureRoutes]", fmt.Sprint(w.actions))
	require.Equal(t, int32(10), w.updated)
}

// What has failed for want of pods is tried again from the pods on: an edit that took them is found there, and said.
func TestARetryOfRoutesLooksAtThePods(t *testing.T) {
	t.Parallel()
	w := routing(t)
	w.fail(failure.WorkloadFailed, "Service shop/order-canary has no ready pod")
	w.drive()
	w.actions = nil
	outcome, message := w.m.Command(rollout.Command{Verb: rollout.VerbRetry}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	w.drive()
	require.Equal(t, "[move 50% EnsureRoutes]", fmt.Sprint(w.actions))
	require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)
}

// While a duel over a Service waits for a person, the same neighbour may have turned the pods round: they are put back before they are routed to, and then the routes.
func TestARetryOfADuelOverRoutesPutsThePodsBack(t *testing.T) {
	t.Parallel()
	w := routing(t)
	w.fail(failure.Drift, "somebody else has changed Service shop/order for the 6th time")
	w.drive()
	require.Equal(t, rollout.WaitDrift, w.m.Status().WaitingFor.Kind)
	w.actions = nil
	outcome, message := w.m.Command(rollout.Command{Verb: rollout.VerbRetry}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	move := w.next()
	require.Equal(t, ActMove, move.Kind)
	require.True(t, move.Move.PutBack)
	w.do(move)
	ensure := w.next()
	require.Equal(t, rollout.RouteEnsure, ensure.Route.Action)
	require.True(t, ensure.Route.Overwrite)
	w.do(ensure)
	w.drive()
	require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)
	require.Equal(t, "[move 50% EnsureRoutes]", fmt.Sprint(w.actions))
}

// A Service that cannot be pinned, since none of the stable pods is ready, waits for nothing that the pods could tell.
func TestARetryOfAPinLooksAtThePods(t *testing.T) {
	t.Parallel()
	w := resting(t, strategy.StyleBlueGreen)
	w.now = w.now.Add(time.Hour)
	w.pinned = false
	w.observed(rollout.ObservedUnpinned)
	w.m.Command(rollout.Command{Verb: rollout.VerbApprove, Step: 1}, w.now)
	pin := w.acts()
	for ; pin.Kind != ActRoute; pin = w.acts() {
		w.do(pin)
	}
	require.Equal(t, rollout.RoutePin, pin.Route.Action)
	w.fail(failure.WorkloadFailed, "no stable pod is left")
	w.drive()
	w.actions = nil
	outcome, message := w.m.Command(rollout.Command{Verb: rollout.VerbRetry}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	require.Equal(t, "what has failed is tried again", message)
	w.drive()
	require.Equal(t, "move 100%", w.actions[0])
	require.Contains(t, w.actions, "PinStableService")
	require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)
	require.Equal(t, 2, w.m.Status().CurrentStepIndex)
}
