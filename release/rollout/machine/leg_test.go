package machine

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// goLeg executes the leg that begins with the action a, at most most parts of it, and returns how it ended.
func (w *world) goLeg(a Action, most int) LegEnd {
	raw, err := json.Marshal(w.m.BeginLeg(&a))
	require.NoError(w.t, err)
	var in LegRequest
	require.NoError(w.t, json.Unmarshal(raw, &in))
	require.Empty(w.t, in.State.Log.Entries, "the log is not sent")
	l := NewLeg(in, nil)
	for n := 0; ; n++ {
		if w.crash != nil {
			if kept := w.crash(l.parts); kept < len(l.parts) {
				w.forget(l.parts[kept:])
				l = NewLeg(in, roundTrip(w.t, l.parts[:kept]))
				l.Repeat()
			}
		}
		part, on := l.Next(w.now)
		for !on && part.Until != nil && part.waitKind == rollout.WaitTimer {
			w.now = *part.Until
			part, on = l.Next(w.now)
		}
		if !on {
			return LegEnd{LegResult: LegResult{Parts: roundTrip(w.t, l.Parts())}}
		}
		moves := part.Kind == ActBegin && w.adopted == nil &&
			l.FirstMove(rollout.BeginResult{Replicas: w.size, Stable: "stable", StableHash: "s",
				StableTemplate: "stable template"}, w.now) != nil
		if n >= most {
			if moves && w.resultLost != nil && w.resultLost() {
				w.claimed, w.templateWritten, w.unsettled = true, true, true
			}
			return LegEnd{LegResult: LegResult{Parts: roundTrip(w.t, l.Parts()), Unknown: l.Repeats()}, Stopped: true}
		}
		w.templateWritten, w.unsettled = w.templateWritten || moves, w.unsettled || moves
		if part.Kind == ActMove && !part.Move.Halt {
			w.reportedMoves++
		}
		w.unsettled = w.unsettled || part.Kind == ActMove && !part.Move.Halt
		l.Done(part, w.perform(part), w.now, w.now)
	}
}

// roundTrip returns parts as they arrive after a round trip through JSON.
func roundTrip(t require.TestingT, parts []Part) (out []Part) {
	raw, err := json.Marshal(parts)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &out))
	return out
}

// byLegs continues by legs until a command is needed or the rollout has ended.
func (w *world) byLegs() Action {
	for range 1000 {
		a := w.m.Next(w.now)
		switch {
		case a.OnParty():
			w.m.EndLeg(w.goLeg(a, 100), w.now)
		case a.Activity():
			w.m.Start(a)
			w.do(a)
		case a.Kind == ActWait && a.Until != nil && w.m.Status().WaitingFor.Kind != rollout.WaitApproval:
			w.now = *a.Until
		default:
			return a
		}
	}
	require.Fail(w.t, "it never waits for a command", "%v", w.actions)
	return Action{}
}

// A leg does what its actions do one by one, and leaves the same state.
func TestLeg_EqualsItsSingleActions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		setup, size := drawSetup(t)
		one, leg := newWorld(t, setup, size), newWorld(t, setup, size)
		for range 12 {
			a, b := one.drive(), leg.byLegs()
			require.Equal(t, a.Kind, b.Kind)
			require.Equal(t, one.actions, leg.actions)
			require.Equal(t, one.m.Status(), leg.m.Status())
			require.JSONEq(t, stateOf(t, one), stateOf(t, leg))
			if a.Kind != ActWait {
				return
			}
			verb := rapid.SampledFrom([]rollout.Verb{rollout.VerbApprove, rollout.VerbResume,
				rollout.VerbRollback}).Draw(t, "verb")
			one.send(rollout.Command{Verb: verb}, one.now)
			leg.send(rollout.Command{Verb: verb}, leg.now)
		}
	})
}

func stateOf(t require.TestingT, w *world) string {
	raw, err := json.Marshal(w.m.State())
	require.NoError(t, err)
	return string(raw)
}

// With any command, approval or hint during a leg, and wherever the leg is stopped, fails or loses its results, the
// invariants hold and the rollout can be ended.
func TestLeg_KeepsInvariants_WhenStoppedAnywhere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		setup, size := drawSetup(t)
		w := newWorld(t, setup, size)
		w.resultLost = func() bool { return rapid.Bool().Draw(t, "resultLost") }
		w.crash = crashAtRandom(t)
		gates := map[string]bool{}
		lost := false
		for i := range rapid.IntRange(0, 20).Draw(t, "rounds") {
			a := w.m.Next(w.now)
			switch {
			case a.Kind == ActClose || a.Kind == ActSupersede:
				w.checkEnd(t, lost)
				return
			case a.OnParty():
				most := rapid.IntRange(0, 6).Draw(t, fmt.Sprint("parts", i))
				end := w.goLeg(a, most)
				w.loseAtRandom(t, i, &end)
				w.approveAtRandom(t, i, gates)
				if kind := rapid.SampledFrom([]failure.Kind{"", failure.Unreachable, failure.WorkloadFailed,
					failure.Drift}).Draw(t, fmt.Sprint("fails", i)); end.Stopped && kind != "" {
					end.Stopped, end.Failure = false, &Failure{Kind: kind, Message: "trouble"}
					w.unsettled = w.unsettled && kind.System()
				}
				w.m.EndLeg(end, w.now)
				w.checkNotApproved(t, end, gates)
				if rapid.Bool().Draw(t, fmt.Sprint("hint", i)) {
					w.observed(rapid.SampledFrom([]string{"edited", rollout.ObservedSettings, rollout.ObservedRoutes}).
						Draw(t, fmt.Sprint("what", i)))
				}
				if end.Stopped || rapid.Bool().Draw(t, fmt.Sprint("command", i)) {
					w.command(t, i, gates)
				}
			case a.Activity():
				w.m.Start(a)
				w.do(a)
			case a.Until != nil:
				w.now = *a.Until
			default:
				w.command(t, i, gates)
			}
		}
		w.bringToEnd(t)
		w.checkEnd(t, lost)
	})
}

// loseAtRandom lets a leg be stopped while no attempt runs after its worker has died: its results are lost.
func (w *world) loseAtRandom(t *rapid.T, i int, end *LegEnd) {
	finished := slices.ContainsFunc(end.Parts, func(p Part) bool { return p.Kind == ActFinish })
	if end.Stopped && !finished && rapid.Bool().Draw(t, fmt.Sprint("lost", i)) {
		w.forget(end.Parts)
		end.Parts, end.Unknown = nil, true
	}
}

// forget takes account of parts whose results are lost.
func (w *world) forget(lost []Part) {
	for _, p := range lost {
		if p.Kind == ActMove {
			w.reportedMoves--
		}
	}
}

// crashAtRandom returns a function that lets the worker of a leg die: the next attempt has the parts of its last
// heartbeat. The parts before a workload is finalised are always in one.
func crashAtRandom(t *rapid.T) func(done []Part) (kept int) {
	crashes := 0
	return func(done []Part) int {
		if len(done) == 0 || done[len(done)-1].Kind == ActFinish || crashes >= 5 || !rapid.Bool().Draw(t, "crash") {
			return len(done)
		}
		crashes++
		return rapid.IntRange(0, len(done)).Draw(t, "kept")
	}
}

// approveAtRandom sends an approval while a leg runs: it is answered at once.
func (w *world) approveAtRandom(t *rapid.T, i int, gates map[string]bool) {
	if !rapid.Bool().Draw(t, fmt.Sprint("approve", i)) {
		return
	}
	s, gate := w.m.Status(), w.m.gate()
	outcome, _ := w.m.Command(rollout.Command{Verb: rollout.VerbApprove, Gate: gate}, w.now)
	if outcome == audit.Accepted {
		require.Equal(t, rollout.StatePaused, s.CurrentStepState, "only a step that is done is approved")
		require.False(t, gates[gate], "a gate opens once")
		gates[gate] = true
	}
}

// checkNotApproved checks that a step that has failed needs another approval, with the same gate.
func (w *world) checkNotApproved(t *rapid.T, end LegEnd, gates map[string]bool) {
	s := w.m.s
	if s.Trouble != nil && w.m.inSteps() && !w.m.hasTimes() {
		require.NotEqual(t, s.Visit, s.ApprovedVisit, "%v", w.actions)
		require.NotEqual(t, rollout.StateReady, s.Status.CurrentStepState, "%v", w.actions)
	}
	if s.Trouble != nil || end.Failure != nil && !end.Failure.Kind.System() {
		delete(gates, w.m.gateOf(""))
	}
}

// A leg whose results are lost is repeated without harm: no Service is pinned to pods that no longer exist, and traffic
// does not go back to the share of an earlier step.
func TestLostLeg_IsRepeatedForwardOnly(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		parts  int
		want   string
	}{
		{"nothing was done", 0, "[begin move 0 PinStableService move 20% EnsureRoutes move 60% EnsureRoutes " +
			"move 80% EnsureRoutes]"},
		{"half of the second step", 5, "[begin move 0 PinStableService move 20% move 60% EnsureRoutes " +
			"move 80% EnsureRoutes]"},
		{"its routes, too", 6, "[begin move 0 PinStableService move 20% move 60% EnsureRoutes " +
			"move 80% EnsureRoutes]"},
	} {
		w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, 0), aStep("60%", 60, 0),
			aStep("80%", 80, -1)), 10)
		w.noGrace = true
		w.loseLeg(tc.parts)
		share := w.share
		w.actions = nil
		for w.m.Status().WaitingFor.Kind != rollout.WaitApproval {
			a := w.m.Next(w.now)
			w.m.EndLeg(w.goLeg(a, 1), w.now)
			require.GreaterOrEqual(t, w.share, share, tc.reason)
			w.now = w.now.Add(time.Minute)
		}
		require.Equal(t, tc.want, fmt.Sprint(w.actions), tc.reason)
		require.Equal(t, int32(80), w.share, tc.reason)
	}

	resumed := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, 0), aStep("60%", 60, 0),
		aStep("80%", 80, -1)), 10)
	resumed.noGrace = true
	resumed.crash = func(done []Part) int {
		if len(done) == 5 && !slices.ContainsFunc(done, func(p Part) bool { return p.AfterCrash }) {
			return 2
		}
		return len(done)
	}
	resumed.m.EndLeg(resumed.goLeg(resumed.m.Next(resumed.now), 100), resumed.now)
	require.Equal(t, "[begin PinStableService move 20% EnsureRoutes move 60% "+
		"move 0 PinStableService move 20% move 60% EnsureRoutes move 80% EnsureRoutes]", fmt.Sprint(resumed.actions),
		"the next attempt of the same leg, whose heartbeat had two parts")
	require.Equal(t, rollout.WaitApproval, resumed.m.Status().WaitingFor.Kind, "the workflow replays it as it was")
	require.False(t, resumed.m.s.RepeatsSteps)

	all := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, 0), aStep("100%", 100, 0)), 10)
	all.noGrace = true
	all.loseLeg(6)
	require.EqualValues(t, 10, all.updated)
	require.False(t, all.pinned)
	all.actions = nil
	require.Equal(t, ActClose, all.byLegs().Kind)
	require.NotContains(t, all.actions, "PinStableService", "no stable pod is left")
	require.Equal(t, rollout.PhaseHealthy, all.m.Status().Phase)
}

// A worker that dies while it finalises has made all steps: the next attempt repeats none of them.
func TestLegAfterCrash_RepeatsNoStep_WhenFinalisingHasBegun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StyleBlueGreen, true, aStep("100%", 50, 0)), 10)
	w.noGrace = true
	var steps int
	w.crash = func(done []Part) int {
		if last := len(done) - 1; last > 0 && done[last].Kind == ActRoute && w.share == 100 && steps == 0 {
			steps = last
			return steps
		}
		return len(done)
	}
	w.m.EndLeg(w.goLeg(w.m.Next(w.now), 100), w.now)
	require.Positive(t, steps)
	require.Equal(t, "[begin PinStableService move 100% EnsureRoutes RouteTrafficToNew RouteTrafficToNew "+
		"RestoreStableService ResumeWorkload new RouteTrafficToStable RemoveCanaryService ReleaseWorkloadControl new]",
		fmt.Sprint(w.actions))
}

// If the results of all steps are known, what came after them was finalising, which only restores.
func TestLostLeg_RepeatsNoStep_WhenAllStepsAreKnown(t *testing.T) {
	t.Parallel()
	for most := 4; most < 7; most++ {
		w := newWorld(t, setupOf(strategy.StyleBlueGreen, true, aStep("100%", 50, 0)), 10)
		w.noGrace = true
		end := w.goLeg(w.m.Next(w.now), most)
		require.True(t, end.Stopped)
		end.Parts, end.Unknown = end.Parts[:4], true
		w.m.EndLeg(end, w.now)
		require.False(t, w.m.s.RepeatsSteps)
		require.Equal(t, rollout.RouteToNew, w.nextActivity().Route.Action)
	}
}

// What an action has used of its deadline does not count for the inspection that comes first after a crash.
func TestInspectionAfterCrash_HasWholeDeadline(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"2 move false false", "1 move false true"} {
		w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, 0), aStep("60%", 60, -1)), 10)
		w.noGrace = true
		end := w.goLeg(w.m.Next(w.now), 2)
		end.Stopped, end.Unknown, end.SpentSeconds, end.Action = false, true, 590, of
		end.Failure = &Failure{Kind: failure.Unreachable, Message: "no worker"}
		w.m.EndLeg(end, w.now)
		w.now = w.now.Add(time.Hour)
		look := w.nextActivity()
		require.True(t, look.Move.Inspect)
		require.Equal(t, of == "1 move false true", look.Move.SpentSeconds == 590, of)
	}
}

// A jump after a lost leg does not skip the inspection: no Service is pinned to stable pods that were replaced.
func TestJumpAfterLostLeg_InspectsPodsFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, -1), aStep("60%", 60, 0),
		aStep("100%", 100, 0)), 10)
	w.noGrace = true
	w.drive()
	w.send(rollout.Command{Verb: rollout.VerbApprove}, w.now)
	end := w.goLeg(w.m.Next(w.now), 4)
	require.True(t, end.Stopped)
	end.Parts, end.Unknown = end.Parts[:2], true // the second step is known, and the third has begun
	w.m.EndLeg(end, w.now)
	outcome, message := w.send(rollout.Command{Verb: rollout.VerbJump, ToStep: 1}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	look := w.nextActivity()
	require.Equal(t, ActMove, look.Kind)
	require.True(t, look.Move.Inspect)
}

// A last step of all pods lets the workload's own controller replace them. The inspection before it starts none of
// that: a pause after it holds them.
func TestInspectionAfterLostLeg_MovesNoPods_BeforeLastStep(t *testing.T) {
	t.Parallel()
	setup := setupOf(strategy.StylePartition, true, aStep("100%", 100, -1))
	setup.Spec.Strategy.DisableGenerateCanaryService = true
	w := newWorld(t, setup, 10)
	w.loseLeg(1)
	w.do(w.nextActivity())
	look := w.nextActivity()
	require.Equal(t, ActMove, look.Kind)
	require.True(t, look.Move.Inspect)
	require.False(t, look.Move.Native)
	w.do(look)
	require.True(t, w.nextActivity().Move.Native, "the step's own move follows")
}

// The step's own move settles the workload. The inspection before it leaves that, unless the rollout is held there.
func TestInspectionAfterCrash_DoesNotSettle_UnlessPaused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StyleBlueGreen, true, aStep("100%", 50, -1)), 10)
	w.loseLeg(1)
	w.do(w.nextActivity())
	look := w.nextActivity()
	require.True(t, look.Move.Inspect)
	require.False(t, look.Move.Settle)
	w.do(look)
	w.send(rollout.Command{Verb: rollout.VerbPause}, w.now)
	require.True(t, w.nextActivity().Halts())
}

// A command after a leg whose results are lost takes traffic from the new version before its pods.
func TestRollbackAfterLostLeg_RestoresTrafficFirst(t *testing.T) {
	t.Parallel()
	for _, inBatches := range []bool{false, true} {
		setup := setupOf(strategy.StylePartition, true, aStep("20%", -1, -1), aStep("40%", 40, 0), aStep("60%", 60, 0))
		setup.Spec.Policy.RollbackInBatches = inBatches
		w := newWorld(t, setup, 10)
		w.noGrace = true
		w.drive()
		w.send(rollout.Command{Verb: rollout.VerbApprove}, w.now)
		w.now = w.now.Add(time.Hour)
		w.loseLeg(3)
		require.Equal(t, int32(40), w.share)
		outcome, message := w.send(rollout.Command{Verb: rollout.VerbRollback}, w.now)
		require.Equal(t, audit.Accepted, outcome, message)
		w.byLegs() // the world checks the order
		for inBatches && !w.m.ended() {
			w.send(rollout.Command{Verb: rollout.VerbApprove}, w.now)
			w.byLegs()
		}
		require.Equal(t, rollout.PhaseRolledBack, w.m.Status().Phase)
		require.Zero(t, w.updated)
	}
}

// loseLeg executes some actions of the next leg, whose results are lost.
func (w *world) loseLeg(parts int) {
	end := w.goLeg(w.m.Next(w.now), parts)
	require.True(w.t, end.Stopped)
	require.Len(w.t, end.Parts, parts)
	end.Parts, end.Unknown = nil, true
	w.m.EndLeg(end, w.now)
}

// A workload that turns out to be released with the new version was not rolled back: the result of its release was
// lost, and the rollback came too late.
func TestLateRollback_EndsHealthy_WhenWorkloadWasReleased(t *testing.T) {
	t.Parallel()
	released := rollout.MoveResult{Replicas: 10, Updated: 10, UpdatedReady: 10, Released: rollout.SideNew}
	setup := setupOf(strategy.StylePartition, false, aStep("20%", -1, -1), aStep("100%", -1, 0))
	setup.Predicted = &rollout.PredictedTemplate{UID: "uid", From: "stable template", Template: "digest"}
	w := newWorld(t, setup, 10)
	w.byLegs()
	w.send(rollout.Command{Verb: rollout.VerbRollback, Actor: "ann"}, w.now)
	a := w.next()
	require.Equal(t, rollout.FinishResumeAndRelease, a.Finish.Action)
	require.Equal(t, "stable template", a.Finish.StableTemplate)
	w.m.Done(Result{Pods: released}, w.now)
	w.drive()
	requireReleasedBefore(t, w)

	w = newWorld(t, setup, 10)
	w.loseLeg(0)
	w.send(rollout.Command{Verb: rollout.VerbRollback, Actor: "ann"}, w.now)
	require.Equal(t, ActBegin, w.next().Kind)
	w.m.Done(Result{Begin: rollout.BeginResult{Replicas: 10, Stable: "new", StableHash: "n", StableTemplate: "digest",
		UID: "uid"}}, w.now)
	w.claimed = true
	w.drive()
	requireReleasedBefore(t, w)
}

// A stop to frozen leaves the workload with whatever it declares: its template says nothing about the ending.
func TestStopToFrozen_EndsCancelled_WhenWorkloadWasReleased(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StylePartition, false, aStep("20%", -1, -1), aStep("100%", -1, 0)), 10)
	w.byLegs()
	w.send(rollout.Command{Verb: rollout.VerbStop, To: rollout.StopToFrozen, Actor: "ann"}, w.now)
	for a := w.next(); a.Kind == ActFinish; a = w.next() {
		w.m.Done(Result{Pods: rollout.MoveResult{Replicas: 10, Released: rollout.SideNew}}, w.now)
	}
	require.Equal(t, rollout.PhaseCancelled, w.m.Status().Phase)
}

func requireReleasedBefore(t *testing.T, w *world) {
	t.Helper()
	s := w.m.Status()
	require.Equal(t, rollout.PhaseHealthy, s.Phase)
	require.Contains(t, s.Reason, "released before the rollback came")
	require.EqualValues(t, 10, s.CanaryReplicas)
}

// legAt starts a rollout of three steps without pauses and stops its leg after this many parts.
func legAt(t *testing.T, parts int) *world {
	w := newWorld(t, setupOf(strategy.StylePartition, false, aStep("20%", -1, 0), aStep("40%", -1, 0),
		aStep("100%", -1, 0)), 10)
	a := w.m.Next(w.now)
	require.True(t, a.OnParty())
	w.m.EndLeg(w.goLeg(a, parts), w.now)
	return w
}

// A command that comes during a leg applies to where the leg was stopped.
func TestCommandAfterStoppedLeg_AppliesFromWhereLegStopped(t *testing.T) {
	t.Parallel()
	paused := legAt(t, 3)
	outcome, message := paused.send(rollout.Command{Verb: rollout.VerbPause, Actor: "ann"}, paused.now)
	require.Equal(t, audit.Accepted, outcome, message)
	require.Equal(t, 3, paused.m.Status().CurrentStepIndex, "two steps had passed when the leg was stopped")
	require.NotNil(t, paused.m.Status().Steps[1].FinishedAt)

	jumped := legAt(t, 3)
	outcome, message = jumped.send(rollout.Command{Verb: rollout.VerbJump, Step: 3, ToStep: 1}, jumped.now)
	require.Equal(t, audit.Accepted, outcome, message)
	require.Equal(t, 1, jumped.m.Status().CurrentStepIndex, "for the sender the rollout was at step 3")

	promoted := legAt(t, 2)
	outcome, message = promoted.send(rollout.Command{Verb: rollout.VerbPromote, Step: 3}, promoted.now)
	require.Equal(t, audit.Refused, outcome)
	require.Equal(t, "meant for step 3, but the rollout is at step 2 of 3: review and retry", message)

	late := legAt(t, 100)
	outcome, message = late.send(rollout.Command{Verb: rollout.VerbRollback, Actor: "ann"}, late.now)
	require.Equal(t, audit.Refused, outcome)
	require.Contains(t, message, "ended")
}

// The time that a stopped action has used of its deadline counts on: refused commands don't extend the deadline.
func TestStoppedLeg_KeepsSpentDeadline(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StylePartition, false, aStep("20%", -1, -1)), 10)
	w.stopMove(70)
	outcome, _ := w.m.Command(rollout.Command{Verb: rollout.VerbApprove, Step: 7}, w.now)
	require.Equal(t, audit.Refused, outcome)
	require.EqualValues(t, 70, w.m.Next(w.now).Move.SpentSeconds)
	again := w.m.Next(w.now)
	w.m.EndLeg(w.goLeg(again, 0), w.now)
	require.EqualValues(t, 70, w.m.Next(w.now).Move.SpentSeconds, "it was stopped before it read the workload")
}

// stopMove continues to the first Move of a step and stops it after it has used some seconds of its deadline.
func (w *world) stopMove(seconds int64) {
	a := w.m.Next(w.now)
	for ; a.Kind != ActMove; a = w.m.Next(w.now) {
		w.m.EndLeg(w.goLeg(a, 1), w.now)
		w.now = w.now.Add(time.Minute) // routes have taken effect
	}
	end := w.goLeg(a, 0)
	end.SpentSeconds = seconds
	w.m.EndLeg(end, w.now)
}

// The used part of a deadline belongs to its action: the actions in between neither pay for it nor lose it.
func TestSpentDeadline_BelongsToItsAction(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		traffic bool
		between func(w *world)
	}{
		{"routes are reverted", true, func(w *world) {
			w.m.Observed(routeDrift, w.now)
			a := w.next()
			require.True(t, a.restores, a.Summary)
			require.Zero(t, a.Route.SpentSeconds, "the revert has its own deadline")
			w.do(a)
		}},
		{"what settles the pods is stopped as well", false, func(w *world) {
			w.m.Command(rollout.Command{Verb: rollout.VerbPause}, w.now)
			end := w.goLeg(w.m.Next(w.now), 0)
			end.SpentSeconds = 5
			w.m.EndLeg(end, w.now)
			a := w.next()
			require.EqualValues(t, 5, a.Move.SpentSeconds)
			w.do(a)
			w.m.Command(rollout.Command{Verb: rollout.VerbResume}, w.now)
		}},
		{"a pause settles the pods", false, func(w *world) {
			w.m.Command(rollout.Command{Verb: rollout.VerbPause}, w.now)
			a := w.next()
			require.True(t, a.Halts(), a.Summary)
			require.Zero(t, a.Move.SpentSeconds, "settling has its own deadline")
			w.do(a)
			w.m.Command(rollout.Command{Verb: rollout.VerbResume}, w.now)
		}},
		{"no worker takes it up", false, func(w *world) {
			w.next()
			w.fail(failure.Unreachable, "no worker")
		}},
	} {
		w := newWorld(t, setupOf(strategy.StylePartition, tc.traffic, aStep("20%", 20, -1), aStep("40%", 40, -1)), 10)
		if !tc.traffic {
			w.m.setup.Spec.Strategy.Steps[0].Traffic = nil
		}
		w.stopMove(70)
		tc.between(w)
		w.now = w.now.Add(time.Minute)
		a := w.m.Next(w.now)
		require.Equal(t, ActMove, a.Kind, tc.reason)
		require.EqualValues(t, 70, a.Move.SpentSeconds, tc.reason)
		w.m.Start(a)
		w.do(a)
		w.drive()
		w.send(rollout.Command{Verb: rollout.VerbApprove}, w.now)
		for a = w.next(); a.Kind != ActMove; a = w.next() {
			if w.now = w.now.Add(time.Minute); a.Activity() {
				w.do(a)
			}
		}
		require.Zero(t, a.Move.SpentSeconds, "%s: the next step has its own deadline", tc.reason)
	}
}

// A retry is an operator's decision: what has failed gets its whole deadline again.
func TestRetry_HasWholeDeadline(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StylePartition, false, aStep("20%", -1, -1)), 10)
	w.stopMove(590)
	w.next()
	w.fail(failure.WorkloadFailed, "0 of 2 pods are ready")
	w.send(rollout.Command{Verb: rollout.VerbRetry}, w.now)
	require.Zero(t, w.next().Move.SpentSeconds)
}

// FirstMove is the Move that follows the claim, if a Move is what follows. The claim may then be taken by the same
// write.
func TestFirstMove_EqualsNextMove(t *testing.T) {
	t.Parallel()
	answer := rollout.BeginResult{Replicas: 10, Stable: "stable", StableHash: "s", StableTemplate: "stable template",
		UID: "uid"}
	steps := []strategy.Step{aStep("20%", -1, 0), aStep("40%", -1, 0), aStep("100%", -1, 0)}
	firstMove := func(setup Setup) *rollout.MoveRequest {
		w := newWorld(t, setup, 10)
		a := w.m.Next(w.now)
		in := w.m.BeginLeg(&a)
		l := NewLeg(in, nil)
		a, on := l.Next(w.now)
		require.True(t, on && a.Kind == ActBegin)
		move := l.FirstMove(answer, w.now)
		l.Done(a, Result{Begin: answer}, w.now, w.now)
		if next, on := l.Next(w.now); move != nil {
			require.True(t, on)
			require.Equal(t, move, next.Move, "the next Move equals it")
		}
		return move
	}
	require.True(t, firstMove(setupOf(strategy.StylePartition, false, steps...)).Native,
		"the workload's own controller replaces all pods")
	require.True(t, firstMove(setupOf(strategy.StylePartition, false, aStep("20%", -1, -1))).Settle,
		"the first step pauses")
	require.Nil(t, firstMove(setupOf(strategy.StylePartition, true, aStep("20%", 20, 0))),
		"its Service is pinned first")
	declared := setupOf(strategy.StylePartition, false, steps...)
	declared.Object = &rollout.ObjectRef{Namespace: "shop", Name: "order"}
	require.Nil(t, firstMove(declared), "its leg has one action")

	shared := setupOf(strategy.StylePartition, false, steps...)
	shared.Spec.Strategy.TrafficRoutingRef = "edge"
	require.Nil(t, firstMove(shared), "the TrafficRouting is joined first")
	answer.Adopted = &rollout.Adopted{Style: strategy.StylePartition}
	require.Nil(t, firstMove(setupOf(strategy.StylePartition, false, steps...)),
		"what an earlier release left is rolled back first")
}

// A command that ends or pauses a rollout before the result of its claim has arrived also undoes what the claim's write
// has begun.
func TestCommand_UndoesFirstMove_WhenClaimResultLost(t *testing.T) {
	t.Parallel()
	for verb, want := range map[rollout.Verb][]string{rollout.VerbPause: {"begin", "halt"},
		rollout.VerbRollback: {"begin", "ResumeAndRelease stable", "record"}} {
		setup := setupOf(strategy.StylePartition, false, aStep("20%", -1, 0), aStep("100%", -1, 0))
		w := newWorld(t, setup, 10)
		w.resultLost = func() bool { return true }
		a := w.m.Next(w.now)
		w.m.EndLeg(w.goLeg(a, 0), w.now)
		w.send(rollout.Command{Verb: verb, Actor: "ann"}, w.now)
		w.drive()
		require.Equal(t, want, w.actions, "%s", verb)
	}
}

// briefPauses returns a setup with two brief pauses.
func briefPauses() Setup {
	setup := setupOf(strategy.StylePartition, false, aStep("20%", -1, 1), aStep("40%", -1, 15), aStep("60%", -1, 16),
		aStep("100%", -1, 0))
	return setup
}

// A leg waits through a brief pause and does not settle the pods for it. A longer pause ends the leg.
func TestLeg_WaitsThroughBriefPauses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, briefPauses(), 10)
	from := w.now
	a := w.m.Next(w.now)
	end := w.goLeg(a, 100)
	require.Len(t, end.Parts, 4, "the claim, and three steps")
	require.Equal(t, from.Add(16*time.Second), w.now)
	require.False(t, w.moves[0].Settle, "its pods are not settled")
	require.True(t, w.moves[2].Settle, "a longer pause settles the pods")
	w.m.EndLeg(end, w.now)
	pause := w.m.Next(w.now)
	require.Equal(t, []any{ActWait, 3, from.Add(32 * time.Second)},
		[]any{pause.Kind, w.m.Status().CurrentStepIndex, *pause.Until})
	require.Equal(t, from.Add(time.Second), *w.m.Status().Steps[0].FinishedAt)
}

// Parts carry times of their worker's clock. The clock of the attempt after a crash may be behind; its parts count
// anyway.
func TestEndLeg_IgnoresClockSkewOfParts(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{-time.Hour, -15 * time.Second, time.Hour} {
		w := newWorld(t, briefPauses(), 10)
		a := w.m.Next(w.now)
		end := w.goLeg(a, 100)
		for i := range end.Parts[2:] {
			p := &end.Parts[2+i]
			p.From, p.At = p.From.Add(skew), p.At.Add(skew)
		}
		w.m.EndLeg(end, w.now)
		require.Equal(t, ActWait, w.m.Next(w.now).Kind)
		require.Equal(t, 3, w.m.Status().CurrentStepIndex, "a skew of %s loses nothing", skew)
	}
}

// A user's pause during a brief pause settles the pods: its length is unknown.
func TestBriefPause_SettlesPods_WhenPausedByUser(t *testing.T) {
	t.Parallel()
	w := newWorld(t, briefPauses(), 10)
	a := w.m.Next(w.now)
	w.m.EndLeg(w.goLeg(a, 2), w.now)
	w.send(rollout.Command{Verb: rollout.VerbPause, Actor: "ann"}, w.now)
	next := w.m.Next(w.now)
	require.True(t, next.Halts(), "%s", next.Summary)
}

// A rollback that comes during the last step goes back through the steps, as its answer promises, however far the leg
// got.
func TestBatchedRollback_GoesThroughSteps_WhenLegEndsInLastStep(t *testing.T) {
	t.Parallel()
	for _, object := range []*rollout.ObjectRef{nil, {Namespace: "shop", Name: "order"}} {
		for _, most := range []int{0, 100} {
			setup := setupOf(strategy.StylePartition, false, aStep("50%", -1, -1), aStep("100%", -1, 0))
			setup.Spec.Policy.RollbackInBatches, setup.Object = true, object
			w := newWorld(t, setup, 4)
			w.byLegs()
			w.send(rollout.Command{Verb: rollout.VerbApprove}, w.now)
			a := w.m.Next(w.now)
			end := w.goLeg(a, most)
			require.LessOrEqual(t, len(end.Parts), 1, "finalising belongs to another leg")
			w.m.EndLeg(end, w.now)
			w.updated = 4 // the pods had moved by then
			_, message := w.send(rollout.Command{Verb: rollout.VerbRollback, Actor: "ann"}, w.now)
			require.Contains(t, message, "through the steps")
			w.byLegs()
			require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)
			require.EqualValues(t, 2, w.m.Status().CanaryReplicas, "half of its pods were rolled back")
		}
	}
}

// Parts that the machine would not have asked for, as those of another build may be, are skipped. The machine repeats
// the step.
func TestEndLeg_SkipsParts_OfAnotherBuild(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StylePartition, false, aStep("50%", -1, -1)), 4)
	a := w.m.Next(w.now)
	end := w.goLeg(a, 100)
	end.Parts[1].Kind = ActRoute
	w.m.EndLeg(end, w.now)
	next := w.m.Next(w.now)
	require.Equal(t, ActMove, next.Kind, "the step is repeated")
	w.m.Start(next)
	w.do(next)
	require.Equal(t, rollout.WaitApproval, func() rollout.WaitKind {
		w.m.Next(w.now)
		return w.m.Status().WaitingFor.Kind
	}())
}
