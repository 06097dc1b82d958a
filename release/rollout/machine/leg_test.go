package machine

import (
	"encoding/json"
	"fmt"
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
			return LegEnd{LegResult: LegResult{Parts: roundTrip(w.t, l.Parts())}, Stopped: true}
		}
		w.templateWritten, w.unsettled = w.templateWritten || moves, w.unsettled || moves
		w.movedPods = w.movedPods || part.Kind == ActMove && !part.Move.Halt
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

// With any command during a leg, and wherever the leg is stopped or fails, the invariants hold and the rollout can be
// ended.
func TestLeg_KeepsInvariants_WhenStoppedAnywhere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		setup, size := drawSetup(t)
		w := newWorld(t, setup, size)
		w.resultLost = func() bool { return rapid.Bool().Draw(t, "resultLost") }
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
				if kind := rapid.SampledFrom([]failure.Kind{"", failure.Unreachable, failure.WorkloadFailed,
					failure.Drift}).Draw(t, fmt.Sprint("fails", i)); end.Stopped && kind != "" {
					end.Stopped, end.Failure = false, &Failure{Kind: kind, Message: "trouble"}
					w.unsettled = w.unsettled && kind.System()
				}
				w.m.EndLeg(end, w.now)
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
	a := w.m.Next(w.now)
	end := w.goLeg(a, 1)
	end.SpentSeconds = 70
	w.m.EndLeg(end, w.now)
	outcome, _ := w.m.Command(rollout.Command{Verb: rollout.VerbApprove, Step: 7}, w.now)
	require.Equal(t, audit.Refused, outcome)
	require.EqualValues(t, 70, w.m.Next(w.now).Move.SpentSeconds)
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
