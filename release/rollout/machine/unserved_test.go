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

// routing returns a rollout whose first step's pods are ready, and whose routes are being made.
func routing(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, setupOf(strategy.StyleBlueGreen, true, aStep("50%", 20, -1), aStep("100%", 100, -1)), 10)
	a := w.nextActivity()
	for ; a.Kind != ActRoute || a.Route.Action != rollout.RouteEnsure; a = w.nextActivity() {
		w.do(a)
	}
	return w
}

// Routes wait for ready pods. An edit by another client may have removed those, so the pods are inspected first.
func TestWorkloadHint_InspectsPodsBeforeRouting(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason   string
		observed rollout.Observed
		looks    bool
	}{
		{"an edited template creates other pods", rollout.Observed{What: "edited"}, true},
		{"a scaled workload needs other numbers", rollout.Observed{What: "scaled"}, true},
		{"routes are being made anyway", routeDrift, false},
	} {
		w := routing(t)
		w.hint(tc.observed, w.now)
		if !tc.looks {
			continue
		}
		look := w.nextActivity()
		require.Equal(t, ActMove, look.Kind, tc.reason)
		require.True(t, look.Move.Inspect, tc.reason)
		w.do(look)
		require.Equal(t, rollout.RouteEnsure, w.nextActivity().Route.Action, "%s: the routes follow", tc.reason)
	}
}

// A hint that comes after the Move, while no action is running, also causes an inspection of the pods.
func TestScaleHint_InspectsPods_BetweenMoveAndRoutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StyleCanary, true, aStep("50%", 20, -1), aStep("100%", 100, -1)), 10)
	a := w.nextActivity()
	for ; a.Kind != ActMove; a = w.nextActivity() {
		w.do(a)
	}
	w.do(a)
	w.size, w.actions = 20, nil
	w.hint(rollout.Observed{What: "scaled"}, w.now)
	w.drive()
	require.Equal(t, "[move 50% EnsureRoutes]", fmt.Sprint(w.actions))
	require.Equal(t, int32(10), w.updated)
}

// A retry of routes that failed for lack of pods starts with the pods: an edit that removed them is found and reported
// there.
func TestRetryOfRoutes_MakesPodsAgain(t *testing.T) {
	t.Parallel()
	w := routing(t)
	w.fail(failure.WorkloadFailed, "Service shop/order-canary has no ready pod")
	w.drive()
	w.actions = nil
	outcome, message := w.send(rollout.Command{Verb: rollout.VerbRetry}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	w.drive()
	require.Equal(t, "[move 50% EnsureRoutes]", fmt.Sprint(w.actions))
	require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)
}

// While drift of a Service waits for an operator, the same client may have edited the pods: a retry restores first the
// pods, then the routes.
func TestRetryAfterRouteDrift_RestoresPodsBeforeRoutes(t *testing.T) {
	t.Parallel()
	w := routing(t)
	w.fail(failure.Drift, "another client has changed Service shop/order for the 6th time")
	w.drive()
	require.Equal(t, rollout.WaitDrift, w.m.Status().WaitingFor.Kind)
	w.actions = nil
	outcome, message := w.send(rollout.Command{Verb: rollout.VerbRetry}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	move := w.next()
	require.Equal(t, ActMove, move.Kind)
	require.True(t, move.Move.OverwriteDrift)
	w.do(move)
	ensure := w.next()
	require.Equal(t, rollout.RouteEnsure, ensure.Route.Action)
	require.True(t, ensure.Route.Overwrite)
	w.do(ensure)
	w.drive()
	require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)
	require.Equal(t, "[move 50% EnsureRoutes]", fmt.Sprint(w.actions))
}

// A Service that cannot be pinned because no stable pod is ready fails. A retry starts with the pods.
func TestRetryOfPin_MakesPodsAgain(t *testing.T) {
	t.Parallel()
	w := atApproval(t, strategy.StyleBlueGreen)
	w.now = w.now.Add(time.Hour)
	w.pinned = false
	w.send(rollout.Command{Verb: rollout.VerbApprove, Step: 1}, w.now)
	w.observed(rollout.ObservedUnpinned)
	pin := w.nextActivity()
	for ; pin.Kind != ActRoute; pin = w.nextActivity() {
		w.do(pin)
	}
	require.Equal(t, rollout.RoutePin, pin.Route.Action)
	w.fail(failure.WorkloadFailed, "no stable pod is left")
	w.drive()
	w.actions = nil
	outcome, message := w.send(rollout.Command{Verb: rollout.VerbRetry}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	require.Equal(t, "retrying what has failed", message)
	w.drive()
	require.Equal(t, "move 100%", w.actions[0])
	require.Contains(t, w.actions, "PinStableService")
	require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)
	require.Equal(t, 2, w.m.Status().CurrentStepIndex)
}
