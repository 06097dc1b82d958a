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

var theirRoute = rollout.Observed{What: rollout.ObservedRoutes, By: "helm", Message: "somebody else has changed HTTPRoute shop/order"}

func (w *world) lastEntry() audit.Entry {
	history := w.m.Status().History
	return history[len(history)-1]
}

// What somebody else changes of Services and routes is put back at once, wherever the step is, and the step goes on where it was.
func TestRoutesArePutBack(t *testing.T) {
	t.Parallel()
	pause := func(w *world) { w.m.Command(rollout.Command{Verb: rollout.VerbPause}, w.now) }
	for _, tc := range []struct {
		reason string
		reach  func(t *testing.T) *world
		waits  rollout.WaitKind
	}{
		{"at rest for an approval", func(t *testing.T) *world { return resting(t, strategy.StylePartition) }, rollout.WaitApproval},
		{"at rest beside an extra workload", func(t *testing.T) *world { return resting(t, strategy.StyleCanary) }, rollout.WaitApproval},
		{"paused", func(t *testing.T) *world {
			w := resting(t, strategy.StylePartition)
			pause(w)
			w.drive()
			return w
		}, rollout.WaitResume},
		{"failed", func(t *testing.T) *world {
			w := resting(t, strategy.StylePartition)
			w.m.Observed(rollout.Observed{What: "edited"}, w.now)
			require.Equal(t, ActMove, w.next().Kind)
			w.fail(failure.WorkloadFailed, "0 of 2 pods are ready")
			w.drive()
			return w
		}, rollout.WaitResume},
	} {
		w := tc.reach(t)
		w.now = w.now.Add(time.Hour)
		w.actions = nil
		w.m.Observed(theirRoute, w.now)
		w.drive()
		require.Equal(t, "[PinStableService EnsureRoutes]", fmt.Sprint(w.actions), tc.reason)
		require.Equal(t, tc.waits, w.m.Status().WaitingFor.Kind, "%s: it waits as before", tc.reason)
		require.Equal(t, rollout.StatePaused, w.m.Status().CurrentStepState, tc.reason)
		require.Equal(t, "helm", w.lastEntry().Actor, tc.reason)
		require.Equal(t, audit.Verb(VerbRestored), w.lastEntry().Verb, tc.reason)
	}
}

// Who edits the canary Service of a rollout that is held half way has its routes given back by the worker first. Both are put back.
func TestRoutesThatTheWorkerGaveBackArePutBack(t *testing.T) {
	t.Parallel()
	for _, observed := range [][]string{{rollout.ObservedUnrouted, rollout.ObservedRoutes}, {rollout.ObservedRoutes, rollout.ObservedUnrouted}} {
		w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, -1), aStep("50%", 50, -1)), 10)
		w.drive()
		w.m.Command(rollout.Command{Verb: rollout.VerbApprove, Step: 1}, w.now)
		w.now = w.now.Add(time.Hour)
		require.Equal(t, ActMove, w.next().Kind)
		w.m.Command(rollout.Command{Verb: rollout.VerbPause}, w.now)
		w.m.Stopped()
		w.drive()
		w.share = 0
		for _, what := range observed {
			if what == rollout.ObservedRoutes {
				w.m.Observed(theirRoute, w.now)
			} else {
				w.observed(what)
			}
		}
		w.drive()
		require.Equal(t, int32(20), w.share, "%v", observed)
		require.Equal(t, rollout.WaitResume, w.m.Status().WaitingFor.Kind, "%v: it is held as before", observed)
	}
}

// A rollout that has failed waits for a person. What cannot be put back meanwhile does not take the place of why it has failed, but is on record.
func TestWhatCannotBePutBackBesideAFailureIsOnRecord(t *testing.T) {
	t.Parallel()
	w := resting(t, strategy.StylePartition)
	w.m.Observed(rollout.Observed{What: "edited"}, w.now)
	require.Equal(t, ActMove, w.next().Kind)
	w.fail(failure.WorkloadFailed, "0 of 2 pods are ready")
	w.drive()
	w.now = w.now.Add(time.Hour)
	w.m.Observed(theirRoute, w.now)
	require.Equal(t, rollout.RoutePin, w.next().Route.Action)
	w.fail(failure.Drift, "Service shop/order was deleted by somebody else: create it again as it was before")
	w.drive()
	require.Contains(t, w.m.Status().Reason, "0 of 2 pods are ready")
	require.Equal(t, "Service shop/order was deleted by somebody else: create it again as it was before", w.lastEntry().Message)
}

// The extra Deployment that somebody deletes while the rollout is held is not made before it goes on: that is on record.
func TestAnExtraDeploymentDeletedWhileHeldIsOnRecord(t *testing.T) {
	t.Parallel()
	w := resting(t, strategy.StyleCanary)
	w.m.Observed(rollout.Observed{What: "edited"}, w.now)
	require.Equal(t, ActMove, w.next().Kind)
	w.fail(failure.WorkloadFailed, "0 of 2 pods are ready")
	w.drive()
	w.m.Observed(rollout.Observed{What: "deleted", Object: "Deployment shop/order-canary", Claim: w.m.setup.Claim, Message: "somebody else has deleted the Deployment shop/order-canary"}, w.now)
	require.Contains(t, w.lastEntry().Message, "somebody else has deleted the Deployment shop/order-canary: it is made again when the release goes on")
}

// Pods that are on their way are stopped while routes are put back, and go on.
func TestRoutesArePutBackInMidStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, -1), aStep("50%", 50, -1)), 10)
	w.drive()
	w.m.Command(rollout.Command{Verb: rollout.VerbApprove, Step: 1}, w.now)
	w.now = w.now.Add(time.Hour)
	require.Equal(t, ActMove, w.next().Kind)
	w.actions = nil
	w.m.Observed(theirRoute, w.now)
	require.True(t, w.m.Interrupts(), "it does not wait until the pods are there")
	w.m.Stopped()
	pin := w.next()
	require.Equal(t, rollout.RoutePin, pin.Route.Action)
	require.True(t, pin.Route.Overwrite)
	w.do(pin)
	w.now = w.now.Add(time.Hour)
	ensure := w.next()
	require.Equal(t, int32(20), *ensure.Route.Traffic.Weight, "as they were before, not as the step asks when its pods are there")
	w.do(ensure)
	w.drive()
	require.Equal(t, "[PinStableService EnsureRoutes move 50% EnsureRoutes]", fmt.Sprint(w.actions))
}

// What turns out to be as it should be is no entry: the release's own deeds are noticed as well, now and then.
func TestWhatIsAsItShouldBeIsNotRecorded(t *testing.T) {
	t.Parallel()
	w := resting(t, strategy.StylePartition)
	w.now = w.now.Add(time.Hour)
	before := len(w.m.Status().History)
	w.m.Observed(theirRoute, w.now)
	for a := w.next(); a.Activity(); a = w.next() {
		w.m.Done(Result{}, w.now)
	}
	require.Len(t, w.m.Status().History, before)
	require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)
}

// Who changes routes more often is not argued with, and what cannot be put back waits for a person.
func TestADuelAboutRoutes(t *testing.T) {
	t.Parallel()
	w := resting(t, strategy.StylePartition)
	w.now = w.now.Add(time.Hour)
	for w.m.Status().WaitingFor.Kind == rollout.WaitApproval {
		require.LessOrEqual(t, w.m.s.Disturbed, rollout.MostDisturbed)
		w.m.Observed(theirRoute, w.now)
		w.drive()
		w.now = w.now.Add(time.Hour)
	}
	require.Equal(t, rollout.WaitDrift, w.m.Status().WaitingFor.Kind)
	require.Contains(t, w.m.Status().Reason, "HTTPRoute shop/order for the 6th time")
	w.actions = nil
	w.m.Observed(theirRoute, w.now)
	w.drive()
	require.Empty(t, w.actions, "no duel")
	outcome, message := w.m.Command(rollout.Command{Verb: rollout.VerbRetry}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	w.drive()
	require.Contains(t, w.actions, "EnsureRoutes", "a retry puts them back")
	require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)

	w.m.Observed(theirRoute, w.now)
	require.Equal(t, rollout.RoutePin, w.next().Route.Action)
	w.fail(failure.Drift, "HTTPRoute shop/order was deleted by somebody else: create it again as it was before retry")
	w.drive()
	require.Equal(t, rollout.WaitDrift, w.m.Status().WaitingFor.Kind)
}

// The party's worker keeps requests from meeting nobody by itself; the rollout pins and routes again when its pods are there.
func TestWhatTheWorkerShelteredIsPinnedAndRoutedAgain(t *testing.T) {
	t.Parallel()
	w := resting(t, strategy.StylePartition)
	w.now = w.now.Add(time.Hour)
	w.actions = nil
	w.observed(rollout.ObservedUnpinned)
	w.observed(rollout.ObservedUnpinned) // told twice, by two workers
	w.observed(rollout.ObservedUnrouted)
	require.Equal(t, audit.Verb(verbRerouted), w.lastEntry().Verb)
	require.Zero(t, w.m.Status().Traffic.CanaryWeight)
	w.drive()
	require.Equal(t, "[move 20% PinStableService move 20% EnsureRoutes]", fmt.Sprint(w.actions))
	require.True(t, w.pinned)
	require.Equal(t, int32(20), w.share)
	require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)

	w.actions = nil
	w.updated = w.size // somebody has let its controller finish: there are no stable pods any more
	w.observed(rollout.ObservedUnpinned)
	w.now = w.now.Add(time.Hour)
	w.drive()
	require.NotContains(t, w.actions, "PinStableService")
	require.False(t, w.pinned)
	require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)
}

// Where no new pod is left, nothing is routed to them: requests would meet nobody.
func TestASideWithoutPodsGetsNoRequests(t *testing.T) {
	t.Parallel()
	w := resting(t, strategy.StyleCanary)
	w.now = w.now.Add(time.Hour)
	w.updated = 0
	w.actions = nil
	w.observed(rollout.ObservedUnrouted)
	look := w.next()
	require.True(t, look.Move.Look)
	w.m.Done(Result{Pods: w.numbers()}, w.now)
	w.drive()
	require.NotContains(t, w.actions, "EnsureRoutes")
	require.Zero(t, w.share)
}

// A hint of a route is heeded when the release routes by that object: its claim may stand on any other object as well, if somebody has copied it there.
func TestAHintOfARouteIsOfOneThatTheReleaseRoutesBy(t *testing.T) {
	t.Parallel()
	setup := setupOf(strategy.StylePartition, true, aStep("20%", 20, -1))
	setup.Claim = "claim@1"
	setup.Spec.Strategy.Routings = []strategy.Routing{{Service: "web", Ingress: &strategy.IngressRef{Name: "edge"}}, {Service: "api", HTTPRoute: "api-route"},
		{Service: "mesh", Custom: []strategy.ObjectRef{{APIVersion: "networking.istio.io/v1", Kind: "VirtualService", Name: "vs"}}}}
	m := NewMachine(setup, time.Now())
	space := setup.Spec.Namespace + "/"
	for object, ours := range map[string]bool{
		"Service " + space + "web": true, "Service " + space + "web-canary": true, "Ingress " + space + "edge-canary": true, "HTTPRoute " + space + "api-route": true,
		"VirtualService " + space + "vs": true, "Service " + space + "other": false, "Service bank/web": false, "Ingress " + space + "other": false,
		"HTTPRoute " + space + "web": false, "VirtualService " + space + "other": false, "DestinationRule " + space + "vs": false, "Service": false, "": false,
	} {
		for _, what := range []string{rollout.ObservedRoutes, rollout.ObservedUnpinned, rollout.ObservedUnrouted} {
			require.Equal(t, ours, m.isOurs(rollout.Observed{What: what, Claim: "claim@1", Object: object}), "%s of %q", what, object)
			require.False(t, m.isOurs(rollout.Observed{What: what, Claim: "claim@2", Object: object}), "another's claim on %q", object)
		}
	}
}

// Services and routes wait for pods, and what somebody else has done to those is looked at first: else nobody would say who it was.
func TestAChangeOfTheWorkloadIsLookedAtBeforeItsTraffic(t *testing.T) {
	t.Parallel()
	theirs := rollout.Observed{What: rollout.ObservedSettings, By: "helm", Message: "somebody else has changed spec.updateStrategy of the StatefulSet shop/order"}
	for _, tc := range []struct {
		reason string
		until  rollout.RouteAction
		step   int
		want   string
	}{
		{"while the routes are made", rollout.RouteEnsure, 1, "[move 20% EnsureRoutes]"},
		{"before the pods of the next step, which stay as many as they are", rollout.RoutePin, 2, "[move 2 PinStableService move 50% EnsureRoutes]"},
	} {
		w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, -1), aStep("50%", 50, -1)), 10)
		if tc.step == 2 {
			w.drive()
			w.observed(rollout.ObservedUnpinned) // so that it pins once more
			w.m.s.Observed = false
			w.m.Command(rollout.Command{Verb: rollout.VerbApprove, Step: 1}, w.now)
		}
		a := w.acts()
		for ; a.Kind != ActRoute || a.Route.Action != tc.until; a = w.acts() {
			w.do(a)
		}
		w.actions = nil
		w.m.Observed(theirs, w.now)
		require.True(t, w.m.Interrupts(), "%s: it does not wait for pods that are gone", tc.reason)
		w.m.Stopped()
		a = w.next()
		require.Equal(t, ActMove, a.Kind, tc.reason)
		require.True(t, a.Move.Look, tc.reason)
		w.do(a)
		for w.m.Status().WaitingFor.Kind != rollout.WaitApproval {
			w.now = w.now.Add(time.Hour)
			w.drive()
		}
		require.Equal(t, tc.want, fmt.Sprint(w.actions), tc.reason)
	}
}

// What the look finds waits for a person.
func TestAnEditThatTakesThePodsOfARouteWaitsForAPerson(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, -1), aStep("50%", 50, -1)), 10)
	for a := w.acts(); a.Kind != ActRoute || a.Route.Action != rollout.RouteEnsure; a = w.acts() {
		w.do(a)
	}
	w.m.Observed(rollout.Observed{What: "edited"}, w.now)
	w.m.Stopped()
	require.Equal(t, ActMove, w.next().Kind)
	w.fail(failure.Drift, "somebody else set its pod template back to the stable version")
	w.drive()
	require.Equal(t, rollout.WaitDrift, w.m.Status().WaitingFor.Kind)
	require.Equal(t, "RouteTrafficToStable", w.actions[len(w.actions)-1], "no request goes to pods that are gone: %v", w.actions)
}

// A blue-green whose stable pods somebody else has taken goes on with the new ones: nobody waits for a stable pod.
func TestABlueGreenWithoutStablePodsIsNotPinned(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StyleBlueGreen, true, aStep("50%", 20, -1), aStep("100%", 100, -1)), 4)
	w.drive()
	w.taken, w.updated, w.pinned = true, 4, false
	w.observed(rollout.ObservedUnpinned)
	w.m.Observed(rollout.Observed{What: rollout.ObservedSettings, By: "helm", Message: "somebody else has changed spec.strategy"}, w.now)
	w.now = w.now.Add(time.Hour)
	w.actions = nil
	w.drive()
	require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)
	require.NotContains(t, w.actions, "PinStableService")
}

// What is put back does not wait for pods that the same hand has taken: the pods go on, and the step pins and routes when they are there.
func TestRoutesThatLackTheirPodsAreLeftToTheStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, -1), aStep("50%", 50, -1)), 10)
	w.drive()
	w.m.Command(rollout.Command{Verb: rollout.VerbApprove, Step: 1}, w.now)
	w.now = w.now.Add(time.Hour)
	require.Equal(t, ActMove, w.next().Kind)
	w.m.Observed(theirRoute, w.now)
	w.m.Stopped()
	pin := w.next()
	require.True(t, pin.Route.Restores)
	w.pinned, w.actions = false, nil
	w.m.Done(Result{Route: rollout.RouteResult{Lacks: "Service shop/order is not pinned yet: no stable pod is ready"}}, w.now)
	for w.m.Status().WaitingFor.Kind != rollout.WaitApproval {
		w.drive()
		w.now = w.now.Add(time.Hour)
	}
	require.Equal(t, "[EnsureRoutes move 50% move 5 PinStableService move 50% EnsureRoutes]", fmt.Sprint(w.actions))
	require.True(t, w.pinned)
}

// Who approves a step while it is only being looked at again was shown it at rest: the approval holds, and counts when the look is done.
func TestAnApprovalDuringALookHolds(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		w := resting(t, strategy.StylePartition)
		gate := w.m.View().Gate
		w.m.Observed(rollout.Observed{What: "edited"}, w.now)
		look := w.next()
		require.Equal(t, ActMove, look.Kind)
		outcome, _ := w.m.Command(rollout.Command{Verb: rollout.VerbApprove, Actor: "bob"}, w.now)
		require.Equal(t, audit.Refused, outcome, "one that names nothing may be meant for what it was not shown")
		outcome, said := w.m.Command(rollout.Command{Verb: rollout.VerbApprove, Actor: "bob", Gate: gate}, w.now)
		require.Equal(t, audit.Accepted, outcome, said)
		if fails {
			w.fail(failure.WorkloadFailed, "0 of 2 pods are ready")
			w.drive()
			require.Equal(t, rollout.WaitResume, w.m.Status().WaitingFor.Kind, "nobody has approved that")
			outcome, _ = w.m.Command(rollout.Command{Verb: rollout.VerbRetry, Actor: "bob"}, w.now)
			require.Equal(t, audit.Accepted, outcome)
			w.drive()
			require.Equal(t, 1, w.m.Status().CurrentStepIndex, "it waits for an approval of what is mended")
			continue
		}
		w.do(look)
		w.drive()
		require.Equal(t, 2, w.m.Status().CurrentStepIndex, "it goes on")
	}
}

// A release for the sake of its number alone: every pod is of the version already. Nothing moves, no step is waited for, and no route is touched.
func TestAReleaseOfWhatIsThereAlready(t *testing.T) {
	t.Parallel()
	for _, style := range []strategy.Style{strategy.StylePartition, strategy.StyleCanary, strategy.StyleBlueGreen} {
		setup := setupOf(style, true, aStep("50%", 20, -1), aStep("100%", 100, -1))
		setup.Spec.Change, setup.Spec.RolloutID, setup.Spec.Strategy.Paused = strategy.Change{Declared: &strategy.Declared{Template: "digest"}}, "7", true
		w := newWorld(t, setup, 10)
		begin := w.next()
		require.Equal(t, ActBegin, begin.Kind)
		w.m.Start(begin)
		w.m.Done(Result{Begin: rollout.BeginResult{Replicas: 10, Stable: "r1", StableHash: "h1", StableTemplate: "digest", Whole: true}}, w.now)
		finish := w.next()
		require.Equal(t, ActFinish, finish.Kind, "%s: %s", style, finish.why)
		require.Equal(t, rollout.FinishResumeAndRelease, finish.Finish.Action, style)
		require.Equal(t, &rollout.Batch{RolloutID: "7", Step: 2}, finish.Finish.Batch, "its pods get the number")
		w.m.Start(finish)
		w.m.Done(Result{Pods: rollout.MoveResult{Replicas: 10, Updated: 10, UpdatedReady: 10, Canary: "r1", CanaryHash: "h1"}}, w.now)
		require.Equal(t, ActComplete, w.next().Kind)
		require.Equal(t, rollout.PhaseHealthy, w.m.Status().Phase)
		require.Contains(t, w.m.Status().Reason, "every pod was of this version already")
	}
}

// A workload whose pod template was another for a moment goes on when its object says that it is what is released once more.
func TestADeclaredReleaseGoesOnWhenItsTemplateIsBack(t *testing.T) {
	t.Parallel()
	setup := setupOf(strategy.StylePartition, false, aStep("50%", -1, -1), aStep("100%", -1, -1))
	setup.Spec.Change = strategy.Change{Declared: &strategy.Declared{Template: "digest"}}
	w := newWorld(t, setup, 10)
	a := w.next()
	for a.Kind != ActMove {
		w.do(a)
		a = w.next()
	}
	w.m.Failed(Failure{Kind: failure.Drift, Message: "somebody else changed its pod template"}, w.now)
	rest := w.next()
	require.Equal(t, ActRest, rest.Kind, "nothing moves until it is clear what that asks for")
	require.Equal(t, rollout.PhaseProgressing, w.m.Status().Phase, "the next command is no failure")
	outcome, _ := w.m.Command(rollout.Command{Verb: rollout.VerbRetry, Actor: "alice"}, w.now)
	require.Equal(t, audit.Accepted, outcome)
	again := w.next()
	require.Equal(t, ActMove, again.Kind, "the pods are looked at")
	require.True(t, again.Move.Look)
}
