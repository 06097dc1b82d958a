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

// routeDrift is a change of a route by another client.
var routeDrift = rollout.Observed{What: rollout.ObservedRoutes, By: "helm",
	Message: "another client has changed HTTPRoute shop/order"}

func (w *world) lastEntry() audit.Entry {
	history := w.m.Status().History
	return history[len(history)-1]
}

// A change of Services and routes by another client is reverted at once, in any state of the step, and the step
// continues where it was.
func TestRouteDrift_IsReverted_WhileWaiting(t *testing.T) {
	t.Parallel()
	pause := func(w *world) { w.send(rollout.Command{Verb: rollout.VerbPause}, w.now) }
	for _, tc := range []struct {
		reason string
		reach  func(t *testing.T) *world
		waits  rollout.WaitKind
	}{
		{"waiting for an approval", func(t *testing.T) *world {
			return atApproval(t, strategy.StylePartition)
		}, rollout.WaitApproval},
		{"waiting for an approval, with an extra workload", func(t *testing.T) *world {
			return atApproval(t, strategy.StyleCanary)
		}, rollout.WaitApproval},
		{"paused", func(t *testing.T) *world {
			w := atApproval(t, strategy.StylePartition)
			pause(w)
			w.drive()
			return w
		}, rollout.WaitResume},
		{"failed", func(t *testing.T) *world {
			w := atApproval(t, strategy.StylePartition)
			w.hint(rollout.Observed{What: "edited"}, w.now)
			require.Equal(t, ActMove, w.next().Kind)
			w.fail(failure.WorkloadFailed, "0 of 2 pods are ready")
			w.drive()
			return w
		}, rollout.WaitResume},
	} {
		w := tc.reach(t)
		w.now = w.now.Add(time.Hour)
		w.actions = nil
		w.hint(routeDrift, w.now)
		w.drive()
		require.Equal(t, "[PinStableService EnsureRoutes]", fmt.Sprint(w.actions), tc.reason)
		require.Equal(t, tc.waits, w.m.Status().WaitingFor.Kind, "%s: it waits as before", tc.reason)
		require.Equal(t, rollout.StatePaused, w.m.Status().CurrentStepState, tc.reason)
		require.Equal(t, "helm", w.lastEntry().Actor, tc.reason)
		require.Equal(t, audit.Verb(VerbRestored), w.lastEntry().Verb, tc.reason)
	}
}

// Another client edits the canary Service of a rollout that is paused half way, and the worker restores its routes.
// Both are reverted.
func TestRouteDrift_IsReverted_WhenWorkerRestoredRoutesFirst(t *testing.T) {
	t.Parallel()
	for _, observed := range [][]string{{rollout.ObservedUnrouted, rollout.ObservedRoutes},
		{rollout.ObservedRoutes, rollout.ObservedUnrouted}} {
		w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, -1), aStep("50%", 50, -1)), 10)
		w.drive()
		w.send(rollout.Command{Verb: rollout.VerbApprove, Step: 1}, w.now)
		w.now = w.now.Add(time.Hour)
		require.Equal(t, ActMove, w.next().Kind)
		w.send(rollout.Command{Verb: rollout.VerbPause}, w.now)
		w.drive()
		w.share = 0
		for _, what := range observed {
			if what == rollout.ObservedRoutes {
				w.hint(routeDrift, w.now)
			} else {
				w.observed(what)
			}
		}
		w.drive()
		require.Equal(t, int32(20), w.share, "%v", observed)
		require.Equal(t, rollout.WaitResume, w.m.Status().WaitingFor.Kind, "%v: it is paused as before", observed)
	}
}

// A change that cannot be reverted while a failed rollout waits for an operator does not replace the reason of the
// failure, but is logged.
func TestUnrevertableRouteDrift_IsLogged_WhenRolloutFailed(t *testing.T) {
	t.Parallel()
	w := atApproval(t, strategy.StylePartition)
	w.hint(rollout.Observed{What: "edited"}, w.now)
	require.Equal(t, ActMove, w.next().Kind)
	w.fail(failure.WorkloadFailed, "0 of 2 pods are ready")
	w.drive()
	w.now = w.now.Add(time.Hour)
	w.hint(routeDrift, w.now)
	require.Equal(t, rollout.RoutePin, w.next().Route.Action)
	w.fail(failure.Drift, "Service shop/order was deleted by another client: create it again as it was before")
	w.drive()
	require.Contains(t, w.m.Status().Reason, "0 of 2 pods are ready")
	require.Equal(t, "Service shop/order was deleted by another client: create it again as it was before",
		w.lastEntry().Message)
}

// An extra Deployment that is deleted while the rollout is held is created again only when it continues. That is
// logged.
func TestDeletedExtraDeployment_IsLogged_WhileHeld(t *testing.T) {
	t.Parallel()
	w := atApproval(t, strategy.StyleCanary)
	w.hint(rollout.Observed{What: "edited"}, w.now)
	require.Equal(t, ActMove, w.next().Kind)
	w.fail(failure.WorkloadFailed, "0 of 2 pods are ready")
	w.drive()
	w.hint(rollout.Observed{What: "deleted", Object: "Deployment shop/order-canary", Claim: w.m.setup.Claim,
		Message: "another client has deleted the Deployment shop/order-canary"}, w.now)
	require.Contains(t, w.lastEntry().Message, "another client has deleted the Deployment shop/order-canary: it is "+
		"created again when the release continues")
}

// A Move is interrupted while routes are restored, and continues afterwards.
func TestRouteDrift_IsReverted_WhilePodsMove(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, -1), aStep("50%", 50, -1)), 10)
	w.drive()
	w.send(rollout.Command{Verb: rollout.VerbApprove, Step: 1}, w.now)
	w.now = w.now.Add(time.Hour)
	require.Equal(t, ActMove, w.next().Kind)
	w.actions = nil
	w.hint(routeDrift, w.now)
	pin := w.next()
	require.Equal(t, rollout.RoutePin, pin.Route.Action)
	require.True(t, pin.Route.Overwrite)
	w.do(pin)
	w.now = w.now.Add(time.Hour)
	ensure := w.next()
	require.Equal(t, int32(20), *ensure.Route.Traffic.Weight,
		"the split before the step, not the one that the step asks for when its pods are ready")
	w.do(ensure)
	w.drive()
	require.Equal(t, "[PinStableService EnsureRoutes move 50% EnsureRoutes]", fmt.Sprint(w.actions))
}

// A hint about an unchanged object adds no entry: the watch sometimes reports the release's own writes.
func TestRouteHint_IsNotLogged_WhenNothingChanged(t *testing.T) {
	t.Parallel()
	w := atApproval(t, strategy.StylePartition)
	w.now = w.now.Add(time.Hour)
	before := len(w.m.Status().History)
	w.hint(routeDrift, w.now)
	for a := w.next(); a.Activity(); a = w.next() {
		w.m.Done(Result{}, w.now)
	}
	require.Len(t, w.m.Status().History, before)
	require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)
}

// After too many changes of routes, or if one cannot be reverted, the rollout waits for an operator.
func TestRouteDrift_WaitsForOperator_AfterTooManyRestores(t *testing.T) {
	t.Parallel()
	w := atApproval(t, strategy.StylePartition)
	w.now = w.now.Add(time.Hour)
	for w.m.Status().WaitingFor.Kind == rollout.WaitApproval {
		require.LessOrEqual(t, w.m.s.RestoreCount, rollout.MaxRestores)
		w.hint(routeDrift, w.now)
		w.drive()
		w.now = w.now.Add(time.Hour)
	}
	require.Equal(t, rollout.WaitDrift, w.m.Status().WaitingFor.Kind)
	require.Contains(t, w.m.Status().Reason, "HTTPRoute shop/order for the 6th time")
	w.actions = nil
	w.hint(routeDrift, w.now)
	w.drive()
	require.Empty(t, w.actions, "the change is not reverted again")
	outcome, message := w.send(rollout.Command{Verb: rollout.VerbRetry}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	w.drive()
	require.Contains(t, w.actions, "EnsureRoutes", "a retry restores them")
	require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)

	w.hint(routeDrift, w.now)
	require.Equal(t, rollout.RoutePin, w.next().Route.Action)
	w.fail(failure.Drift, "HTTPRoute shop/order was deleted by another client: create it again as it was before retry")
	w.drive()
	require.Equal(t, rollout.WaitDrift, w.m.Status().WaitingFor.Kind)
}

// The party's worker restores Services and routes that select no ready pod. The rollout pins and routes again when its
// pods are ready.
func TestWorkerRestoredTraffic_IsPinnedAndRoutedAgain(t *testing.T) {
	t.Parallel()
	w := atApproval(t, strategy.StylePartition)
	w.now = w.now.Add(time.Hour)
	w.actions = nil
	w.observed(rollout.ObservedUnpinned)
	w.observed(rollout.ObservedUnpinned) // reported twice, by two workers
	w.observed(rollout.ObservedUnrouted)
	require.Equal(t, audit.Verb(verbRerouted), w.lastEntry().Verb)
	require.Zero(t, w.m.Status().Traffic.CanaryWeight)
	w.drive()
	require.Equal(t, "[move 20% PinStableService move 20% EnsureRoutes]", fmt.Sprint(w.actions))
	require.True(t, w.pinned)
	require.Equal(t, int32(20), w.share)
	require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)

	w.actions = nil
	w.updated = w.size // another client let the controller finish: there are no stable pods any more
	w.observed(rollout.ObservedUnpinned)
	w.now = w.now.Add(time.Hour)
	w.drive()
	require.NotContains(t, w.actions, "PinStableService")
	require.False(t, w.pinned)
	require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)
}

// Nothing is routed to the new version while it has no pod.
func TestRoutes_AreNotWritten_WithoutNewPods(t *testing.T) {
	t.Parallel()
	w := atApproval(t, strategy.StyleCanary)
	w.now = w.now.Add(time.Hour)
	w.updated = 0
	w.actions = nil
	w.observed(rollout.ObservedUnrouted)
	look := w.next()
	require.True(t, look.Move.Inspect)
	w.m.Done(Result{Pods: w.numbers()}, w.now)
	w.drive()
	require.NotContains(t, w.actions, "EnsureRoutes")
	require.Zero(t, w.share)
}

// A hint about a route counts only if the release routes by that object: a user may have copied its claim onto another
// object.
func TestRouteHint_IsIgnored_ForForeignObject(t *testing.T) {
	t.Parallel()
	setup := setupOf(strategy.StylePartition, true, aStep("20%", 20, -1))
	setup.Claim = "claim@1"
	setup.Spec.Strategy.Routings = []strategy.Routing{{Service: "web", Ingress: &strategy.IngressRef{Name: "edge"}},
		{Service: "api", HTTPRoute: "api-route"},
		{Service: "mesh", Custom: []strategy.ObjectRef{{APIVersion: "networking.istio.io/v1", Kind: "VirtualService",
			Name: "vs"}}}}
	m := NewMachine(setup, time.Now())
	space := setup.Spec.Namespace + "/"
	for object, ours := range map[string]bool{
		"Service " + space + "web": true, "Service " + space + "web-canary": true,
		"Ingress " + space + "edge-canary": true, "HTTPRoute " + space + "api-route": true,
		"VirtualService " + space + "vs": true, "Service " + space + "other": false, "Service bank/web": false,
		"Ingress " + space + "other": false,
		"HTTPRoute " + space + "web": false, "VirtualService " + space + "other": false,
		"DestinationRule " + space + "vs": false, "Service": false, "": false,
	} {
		for _, what := range []string{rollout.ObservedRoutes, rollout.ObservedUnpinned, rollout.ObservedUnrouted} {
			require.Equal(t, ours, m.Heeds(rollout.Observed{What: what, Claim: "claim@1", Object: object}), "%s of %q",
				what, object)
			require.False(t, m.Heeds(rollout.Observed{What: what, Claim: "claim@2", Object: object}),
				"another release's claim on %q", object)
		}
	}
}

// Services and routes wait for pods. A change of the workload by another client is inspected first, so that the status
// names the client.
func TestWorkloadDrift_IsInspectedBeforeTraffic(t *testing.T) {
	t.Parallel()
	theirs := rollout.Observed{What: rollout.ObservedSettings, By: "helm",
		Message: "another client has changed spec.updateStrategy of the StatefulSet shop/order"}
	for _, tc := range []struct {
		reason string
		until  rollout.RouteAction
		step   int
		want   string
	}{
		{"while the routes are made", rollout.RouteEnsure, 1, "[move 20% EnsureRoutes]"},
		{"before the pods of the next step, whose number stays", rollout.RoutePin, 2,
			"[move 2 PinStableService move 50% EnsureRoutes]"},
	} {
		w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, -1), aStep("50%", 50, -1)), 10)
		if tc.step == 2 {
			w.drive()
			w.observed(rollout.ObservedUnpinned) // so that it pins once more
			w.m.s.ChangeObserved = false
			w.send(rollout.Command{Verb: rollout.VerbApprove, Step: 1}, w.now)
		}
		a := w.nextActivity()
		for ; a.Kind != ActRoute || a.Route.Action != tc.until; a = w.nextActivity() {
			w.do(a)
		}
		w.actions = nil
		w.hint(theirs, w.now)
		a = w.next()
		require.Equal(t, ActMove, a.Kind, tc.reason)
		require.True(t, a.Move.Inspect, tc.reason)
		w.do(a)
		for w.m.Status().WaitingFor.Kind != rollout.WaitApproval {
			w.now = w.now.Add(time.Hour)
			w.drive()
		}
		require.Equal(t, tc.want, fmt.Sprint(w.actions), tc.reason)
	}
}

// Drift that the inspection finds waits for an operator.
func TestTemplateDrift_WaitsForOperator_WhileRoutesAreMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, -1), aStep("50%", 50, -1)), 10)
	for a := w.nextActivity(); a.Kind != ActRoute || a.Route.Action != rollout.RouteEnsure; a = w.nextActivity() {
		w.do(a)
	}
	w.hint(rollout.Observed{What: "edited"}, w.now)
	require.Equal(t, ActMove, w.next().Kind)
	w.fail(failure.Drift, "another client set its pod template back to the stable version")
	w.drive()
	require.Equal(t, rollout.WaitDrift, w.m.Status().WaitingFor.Kind)
	require.Equal(t, "RouteTrafficToStable", w.actions[len(w.actions)-1], "no request goes to deleted pods: %v",
		w.actions)
}

// Another client has replaced the stable pods of a blue-green. It continues with the new ones, and does not wait for a
// stable pod.
func TestBlueGreen_IsNotPinned_WithoutStablePods(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StyleBlueGreen, true, aStep("50%", 20, -1), aStep("100%", 100, -1)), 4)
	w.drive()
	w.stableReplaced, w.updated, w.pinned = true, 4, false
	w.observed(rollout.ObservedUnpinned)
	w.hint(rollout.Observed{What: rollout.ObservedSettings, By: "helm",
		Message: "another client has changed spec.strategy"}, w.now)
	w.now = w.now.Add(time.Hour)
	w.actions = nil
	w.drive()
	require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)
	require.NotContains(t, w.actions, "PinStableService")
}

// Restoring a route does not wait for pods that the same client has removed: the Move continues, and the step pins and
// routes when they are ready.
func TestRouteRestore_IsLeftToStep_WithoutPods(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, -1), aStep("50%", 50, -1)), 10)
	w.drive()
	w.send(rollout.Command{Verb: rollout.VerbApprove, Step: 1}, w.now)
	w.now = w.now.Add(time.Hour)
	require.Equal(t, ActMove, w.next().Kind)
	w.hint(routeDrift, w.now)
	pin := w.next()
	require.True(t, pin.Route.Restores)
	w.pinned, w.actions = false, nil
	w.m.Done(Result{
		Route: rollout.RouteResult{MissingPods: "Service shop/order is not pinned yet: no stable pod is ready"}}, w.now)
	for w.m.Status().WaitingFor.Kind != rollout.WaitApproval {
		w.drive()
		w.now = w.now.Add(time.Hour)
	}
	require.Equal(t, "[EnsureRoutes move 50% move 5 PinStableService move 50% EnsureRoutes]", fmt.Sprint(w.actions))
	require.True(t, w.pinned)
}

// An approval with the gate of a step that is only being inspected was given for its pause: it counts when the
// inspection is done.
func TestApproval_Counts_DuringInspection(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		w := atApproval(t, strategy.StylePartition)
		gate := w.m.View().Gate
		w.hint(rollout.Observed{What: "edited"}, w.now)
		look := w.next()
		require.Equal(t, ActMove, look.Kind)
		outcome, _ := w.send(rollout.Command{Verb: rollout.VerbApprove, Actor: "bob"}, w.now)
		require.Equal(t, audit.Refused, outcome, "without a gate the approver may have seen another state")
		outcome, message := w.send(rollout.Command{Verb: rollout.VerbApprove, Actor: "bob", Gate: gate}, w.now)
		require.Equal(t, audit.Accepted, outcome, message)
		look = w.next()
		require.True(t, look.Move.Inspect, "the inspection that the approval has stopped is repeated")
		if fails {
			w.fail(failure.WorkloadFailed, "0 of 2 pods are ready")
			w.drive()
			require.Equal(t, rollout.WaitResume, w.m.Status().WaitingFor.Kind, "a failure was not approved")
			outcome, _ = w.send(rollout.Command{Verb: rollout.VerbRetry, Actor: "bob"}, w.now)
			require.Equal(t, audit.Accepted, outcome)
			w.drive()
			require.Equal(t, 1, w.m.Status().CurrentStepIndex, "it waits for an approval of the repaired step")
			continue
		}
		w.do(look)
		w.drive()
		require.Equal(t, 2, w.m.Status().CurrentStepIndex, "the rollout continues")
	}
}

// An approval that comes while routes are reverted counts once they are. If that fails, it counts no more: an approval
// does not cover a failed state.
func TestApproval_CountsAfterRoutesAreReverted(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		w := atApproval(t, strategy.StylePartition)
		w.now = w.now.Add(time.Hour)
		w.hint(routeDrift, w.now)
		require.True(t, w.next().restores)
		approve := rollout.Command{Verb: rollout.VerbApprove, Gate: w.m.gate()}
		outcome, message := w.send(approve, w.now)
		require.Equal(t, audit.Accepted, outcome, message)
		outcome, message = w.send(approve, w.now)
		require.Equal(t, audit.Refused, outcome, "a gate opens once")
		require.Contains(t, message, "approved already")
		if !fails {
			w.do(*w.m.running)
			w.drive()
			require.Equal(t, 2, w.m.Status().CurrentStepIndex)
			continue
		}
		w.fail(failure.Drift, "Service shop/order was deleted by another client: create it again as it was before")
		w.drive()
		w.send(rollout.Command{Verb: rollout.VerbRetry}, w.now)
		w.drive()
		require.Equal(t, 1, w.m.Status().CurrentStepIndex, "it waits for an approval again")
		require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)
	}
}

// A change that was noticed during another action is inspected before the step continues, like one that is being
// inspected.
func TestApproval_Counts_BeforeInspectionOfObservedChange(t *testing.T) {
	t.Parallel()
	w := atApproval(t, strategy.StylePartition)
	w.m.Observed(rollout.Observed{What: "edited"}, w.now)
	outcome, message := w.send(rollout.Command{Verb: rollout.VerbApprove, Gate: w.m.gate()}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	require.True(t, w.next().Move.Inspect)
	w.fail(failure.Drift, "another client edited it")
	w.drive()
	w.send(rollout.Command{Verb: rollout.VerbRetry}, w.now)
	w.drive()
	require.Equal(t, 1, w.m.Status().CurrentStepIndex, "it waits for an approval again")
}

// Every pod is of the new version already: the release only numbers the pods. No pod moves, no step waits, no route is
// changed.
func TestRelease_OnlyNumbersPods_WhenAlreadyComplete(t *testing.T) {
	t.Parallel()
	for _, style := range []strategy.Style{strategy.StylePartition, strategy.StyleCanary, strategy.StyleBlueGreen} {
		setup := setupOf(style, true, aStep("50%", 20, -1), aStep("100%", 100, -1))
		setup.Spec.Change, setup.Spec.RolloutID, setup.Spec.Strategy.Paused =
			strategy.Change{Declared: &strategy.Declared{Template: "digest"}}, "7", true
		w := newWorld(t, setup, 10)
		begin := w.next()
		require.Equal(t, ActBegin, begin.Kind)
		w.m.Start(begin)
		w.m.Done(Result{Begin: rollout.BeginResult{Replicas: 10, Stable: "r1", StableHash: "h1",
			StableTemplate: "digest", AlreadyComplete: true}}, w.now)
		finish := w.next()
		require.Equal(t, ActFinish, finish.Kind, "%s: %s", style, finish.reason)
		require.Equal(t, rollout.FinishResumeAndRelease, finish.Finish.Action, style)
		require.Equal(t, &rollout.Batch{RolloutID: "7", Step: 2}, finish.Finish.Batch,
			"its pods get the release's number")
		w.m.Start(finish)
		w.m.Done(Result{Pods: rollout.MoveResult{Replicas: 10, Updated: 10, UpdatedReady: 10, Canary: "r1",
			CanaryHash: "h1"}}, w.now)
		require.Equal(t, ActComplete, w.next().Kind)
		require.Equal(t, rollout.PhaseHealthy, w.m.Status().Phase)
		require.Contains(t, w.m.Status().Reason, "every pod was of this version already")
	}
}

// The workload's pod template was another one for a moment. The release continues when the Rollout object's retry
// arrives.
func TestDeclaredRelease_Continues_WhenTemplateRestored(t *testing.T) {
	t.Parallel()
	setup := setupOf(strategy.StylePartition, false, aStep("50%", -1, -1), aStep("100%", -1, -1))
	setup.Spec.Change = strategy.Change{Declared: &strategy.Declared{Template: "digest"}}
	w := newWorld(t, setup, 10)
	a := w.next()
	for a.Kind != ActMove {
		w.do(a)
		a = w.next()
	}
	w.m.Failed(Failure{Kind: failure.Drift, Message: "another client changed its pod template"}, w.now)
	rest := w.next()
	require.Equal(t, ActWait, rest.Kind, "no pod moves until the next command arrives")
	require.Equal(t, rollout.PhaseProgressing, w.m.Status().Phase, "a command is not a failure")
	outcome, _ := w.send(rollout.Command{Verb: rollout.VerbRetry, Actor: "alice"}, w.now)
	require.Equal(t, audit.Accepted, outcome)
	again := w.next()
	require.Equal(t, ActMove, again.Kind, "the pods are inspected")
	require.True(t, again.Move.Inspect)
}
