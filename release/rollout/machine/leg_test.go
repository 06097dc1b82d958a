package machine

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// goLeg has the world go the leg that begins with an action which was decided on: most parts of it at most; between is called after the first part. It
// says how the leg ended.
func (w *world) goLeg(a Action, most int, between func()) LegEnd {
	raw, err := json.Marshal(w.m.BeginLeg(&a))
	require.NoError(w.t, err)
	w.m.Start(a)
	var in LegRequest
	require.NoError(w.t, json.Unmarshal(raw, &in))
	require.Empty(w.t, in.State.Log.Entries, "the log stays at home")
	l := NewLeg(in, nil)
	for n := 0; ; n++ {
		part, on := l.Next(w.now)
		for !on && part.Until != nil && part.waits == rollout.WaitTimer {
			w.now = *part.Until
			part, on = l.Next(w.now)
		}
		if !on {
			return LegEnd{Parts: carried(w.t, l.Parts())}
		}
		moves := part.Kind == ActBegin && w.adopted == nil && l.FirstMove(rollout.BeginResult{Replicas: w.size, Stable: "stable", StableHash: "s", StableTemplate: "stable template"}, w.now) != nil
		if n >= most {
			if moves && w.unheard != nil && w.unheard() {
				w.claimed, w.placed, w.loose = true, true, true
			}
			return LegEnd{Parts: carried(w.t, l.Parts()), Stopped: true}
		}
		w.placed, w.loose = w.placed || moves, w.loose || moves
		w.brought = w.brought || part.Kind == ActMove && !part.Move.Halt
		w.loose = w.loose || part.Kind == ActMove && !part.Move.Halt
		l.Done(part, w.perform(part), w.now, w.now)
		if n == 0 && between != nil {
			between()
		}
	}
}

// carried are parts as they travel.
func carried(t require.TestingT, parts []Part) (out []Part) {
	raw, err := json.Marshal(parts)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &out))
	return out
}

// byLegs goes on by legs until somebody has to do something, or it is over.
func (w *world) byLegs() Action {
	for range 1000 {
		a := w.m.Next(w.now)
		switch {
		case w.m.Leg(a):
			w.m.EndLeg(w.goLeg(a, 100, nil), w.now)
		case a.Activity():
			w.m.Start(a)
			w.do(a)
		case a.Kind == ActRest && a.Until != nil && w.m.Status().WaitingFor.Kind != rollout.WaitApproval:
			w.now = *a.Until
		default:
			return a
		}
	}
	require.Fail(w.t, "it never comes to rest", "%v", w.actions)
	return Action{}
}

// A leg does what its actions do one by one, and leaves the same state behind.
func TestALegIsItsActions(t *testing.T) {
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
			if a.Kind != ActRest {
				return
			}
			verb := rapid.SampledFrom([]rollout.Verb{rollout.VerbApprove, rollout.VerbResume, rollout.VerbRollback}).Draw(t, "verb")
			one.m.Command(rollout.Command{Verb: verb}, one.now)
			leg.m.Command(rollout.Command{Verb: verb}, leg.now)
		}
	})
}

func stateOf(t require.TestingT, w *world) string {
	raw, err := json.Marshal(w.m.State())
	require.NoError(t, err)
	return string(raw)
}

// Whatever is sent while a leg is gone, and wherever the leg is stopped or fails: the promises are kept, and it can be brought to an end.
func TestALegMayBeStoppedAnywhere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		setup, size := drawSetup(t)
		w := newWorld(t, setup, size)
		w.unheard = func() bool { return rapid.Bool().Draw(t, "unheard") }
		gates := map[string]bool{}
		lost := false
		for i := range rapid.IntRange(0, 20).Draw(t, "rounds") {
			a := w.m.Next(w.now)
			switch {
			case a.Kind == ActClose || a.Kind == ActSupersede:
				w.checkEnd(t, lost)
				return
			case w.m.Leg(a):
				most := rapid.IntRange(0, 6).Draw(t, fmt.Sprint("parts", i))
				end := w.goLeg(a, most, func() {
					if rapid.Bool().Draw(t, fmt.Sprint("command", i)) {
						w.command(t, i, gates)
					}
				})
				if kind := rapid.SampledFrom([]failure.Kind{"", failure.Unreachable, failure.WorkloadFailed, failure.Drift}).Draw(t, fmt.Sprint("fails", i)); end.Stopped && kind != "" {
					end.Stopped, end.Failure = false, &Failure{Kind: kind, Message: "trouble"}
					w.loose = w.loose && kind.System()
				}
				w.m.EndLeg(end, w.now)
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

// legAt begins a rollout of three steps that rest nowhere and stops its leg when so many parts are done.
func legAt(t *testing.T, parts int, between func(w *world)) *world {
	w := newWorld(t, setupOf(strategy.StylePartition, false, aStep("20%", -1, 0), aStep("40%", -1, 0), aStep("100%", -1, 0)), 10)
	a := w.m.Next(w.now)
	require.True(t, w.m.Leg(a))
	w.m.EndLeg(w.goLeg(a, parts, func() { between(w) }), w.now)
	return w
}

// What is sent while a leg is gone holds from where the leg was stopped, not from where the workflow knew it to be.
func TestACommandHoldsFromWhereTheLegWasStopped(t *testing.T) {
	t.Parallel()
	send := func(c rollout.Command) func(w *world) {
		return func(w *world) {
			outcome, message := w.m.Command(c, w.now)
			require.Equal(t, "accepted", string(outcome), message)
		}
	}
	paused := legAt(t, 3, send(rollout.Command{Verb: rollout.VerbPause, Actor: "ann"}))
	require.True(t, paused.m.Status().Paused)
	require.Equal(t, 3, paused.m.Status().CurrentStepIndex, "two steps had passed when the leg was stopped")
	require.NotNil(t, paused.m.Status().Steps[1].FinishedAt)

	jumped := legAt(t, 3, send(rollout.Command{Verb: rollout.VerbJump, Step: 3, ToStep: 1}))
	require.Equal(t, 1, jumped.m.Status().CurrentStepIndex, "for whoever sent it it was at step 3")

	promoted := legAt(t, 2, send(rollout.Command{Verb: rollout.VerbPromote, Step: 3}))
	require.Equal(t, "it came too late: meant for step 3, but the rollout is at step 2 of 3: look at it again",
		promoted.m.Status().History[len(promoted.m.Status().History)-1].Message)

	late := legAt(t, 100, send(rollout.Command{Verb: rollout.VerbRollback, Actor: "ann"}))
	late.drive()
	require.Equal(t, rollout.PhaseHealthy, late.m.Status().Phase)
	require.Contains(t, late.m.Status().History[len(late.m.Status().History)-1].Message, "it came too late")
}

// The claim may be taken together with the first of the Move, wherever that is what comes next.
func TestTheFirstMoveIsForetold(t *testing.T) {
	t.Parallel()
	answer := rollout.BeginResult{Replicas: 10, Stable: "stable", StableHash: "s", StableTemplate: "stable template", UID: "uid"}
	steps := []strategy.Step{aStep("20%", -1, 0), aStep("40%", -1, 0), aStep("100%", -1, 0)}
	foretold := func(setup Setup, change func(*LegRequest)) *rollout.MoveRequest {
		w := newWorld(t, setup, 10)
		a := w.m.Next(w.now)
		in := w.m.BeginLeg(&a)
		in.State.OneWrite = true
		change(&in)
		l := NewLeg(in, nil)
		a, on := l.Next(w.now)
		require.True(t, on && a.Kind == ActBegin)
		move := l.FirstMove(answer, w.now)
		l.Done(a, Result{Begin: answer}, w.now, w.now)
		if next, on := l.Next(w.now); move != nil {
			require.True(t, on)
			require.Equal(t, move, next.Move, "it is the Move that then comes")
		}
		return move
	}
	same := func(*LegRequest) {}
	require.True(t, foretold(setupOf(strategy.StylePartition, false, steps...), same).Native, "its own controller goes to the end")
	require.True(t, foretold(setupOf(strategy.StylePartition, false, aStep("20%", -1, -1)), same).Rest, "the first step rests")
	require.Nil(t, foretold(setupOf(strategy.StylePartition, true, aStep("20%", 20, 0)), same), "its Service is pinned first")
	require.Nil(t, foretold(setupOf(strategy.StylePartition, false, steps...), func(in *LegRequest) { in.State.OneWrite = false }), "a workflow of before takes it for untouched")

	shared := setupOf(strategy.StylePartition, false, steps...)
	shared.Spec.Strategy.TrafficRoutingRef = "edge"
	require.Nil(t, foretold(shared, same), "a TrafficRouting is held first")
	answer.Adopted = &rollout.Adopted{Style: strategy.StylePartition}
	require.Nil(t, foretold(setupOf(strategy.StylePartition, false, steps...), same), "what an earlier release left goes home first")
}

// Whoever ends or pauses a rollout before the answer to its claim was heard does not leave behind what came with it.
func TestAClaimThatWasNotHeardOfMayHaveMoved(t *testing.T) {
	t.Parallel()
	for verb, want := range map[rollout.Verb][]string{rollout.VerbPause: {"begin", "halt"}, rollout.VerbRollback: {"begin", "ResumeAndRelease stable", "record"}} {
		setup := setupOf(strategy.StylePartition, false, aStep("20%", -1, 0), aStep("100%", -1, 0))
		setup.OneWrite = true
		w := newWorld(t, setup, 10)
		w.unheard = func() bool { return true }
		a := w.m.Next(w.now)
		end := w.goLeg(a, 0, nil)
		w.m.Command(rollout.Command{Verb: verb, Actor: "ann"}, w.now)
		w.m.EndLeg(end, w.now)
		w.drive()
		require.Equal(t, want, w.actions, "%s", verb)
	}
}

// Nobody waits for the pods of a first step that are not to come any more.
func TestWhatEndsARolloutStopsItsFirstLeg(t *testing.T) {
	t.Parallel()
	for _, c := range []rollout.Command{{Verb: rollout.VerbRollback}, {Verb: rollout.VerbStop}, {Verb: rollout.VerbStop, To: rollout.StopToNew}, {Verb: rollout.VerbStop, To: rollout.StopToFrozen}} {
		for _, stops := range []bool{true, false} {
			setup := setupOf(strategy.StylePartition, false, aStep("20%", -1, 0), aStep("100%", -1, 0))
			setup.OneWrite = stops
			w := newWorld(t, setup, 10)
			a := w.m.Next(w.now)
			w.goLeg(a, 2, nil)
			outcome, message := w.m.Command(c, w.now)
			require.Equal(t, "accepted", string(outcome), message)
			require.Equal(t, stops, w.m.Interrupts(), "%s %s, of a run that knows it: %t", c.Verb, c.To, stops)
		}
	}
}

// briefly is a setup of two brief rests.
func briefly() Setup {
	setup := setupOf(strategy.StylePartition, false, aStep("20%", -1, 1), aStep("40%", -1, 15), aStep("60%", -1, 16), aStep("100%", -1, 0))
	setup.BriefRests = true
	return setup
}

// A leg waits out what is soon over, and parks nothing for it; a rest that is longer ends it.
func TestALegWaitsOutBriefRests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, briefly(), 10)
	from := w.now
	a := w.m.Next(w.now)
	end := w.goLeg(a, 100, nil)
	require.Len(t, end.Parts, 4, "the claim, and three steps")
	require.Equal(t, from.Add(16*time.Second), w.now)
	require.False(t, w.moves[0].Rest, "its pods stay behind the gate")
	require.True(t, w.moves[2].Rest, "what rests for longer is parked")
	w.m.EndLeg(end, w.now)
	rests := w.m.Next(w.now)
	require.Equal(t, []any{ActRest, 3, from.Add(32 * time.Second)}, []any{rests.Kind, w.m.Status().CurrentStepIndex, *rests.Until})
	require.Equal(t, from.Add(time.Second), *w.m.Status().Steps[0].FinishedAt)
}

// Parts tell times of the clock of their worker. That of the attempt after a crash may be behind: what was done was done.
func TestALegIsTakenInWhateverItsClocksSay(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{-time.Hour, -15 * time.Second, time.Hour} {
		w := newWorld(t, briefly(), 10)
		a := w.m.Next(w.now)
		end := w.goLeg(a, 100, nil)
		for i := range end.Parts[2:] {
			p := &end.Parts[2+i]
			p.From, p.At = p.From.Add(skew), p.At.Add(skew)
		}
		w.m.EndLeg(end, w.now)
		require.Equal(t, ActRest, w.m.Next(w.now).Kind)
		require.Equal(t, 3, w.m.Status().CurrentStepIndex, "a skew of %s loses nothing", skew)
	}
}

// Whoever pauses in a brief rest has the pods parked: nobody knows for how long.
func TestABriefRestThatIsPausedIsParked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, briefly(), 10)
	a := w.m.Next(w.now)
	end := w.goLeg(a, 2, func() { w.m.Command(rollout.Command{Verb: rollout.VerbPause, Actor: "ann"}, w.now) })
	w.m.EndLeg(end, w.now)
	next := w.m.Next(w.now)
	require.True(t, next.Halts(), "%s", next.Summary)
}

// A rollback that comes while the last step is made goes back through the steps, as whoever sent it was told, however far the leg had gone by then.
func TestARollbackInBatchesHoldsBehindTheLastStep(t *testing.T) {
	t.Parallel()
	for _, most := range []int{2, 100} {
		setup := setupOf(strategy.StylePartition, false, aStep("50%", -1, -1), aStep("100%", -1, 0))
		setup.BriefRests, setup.Spec.Policy.RollbackInBatches = true, true
		w := newWorld(t, setup, 4)
		w.byLegs()
		w.m.Command(rollout.Command{Verb: rollout.VerbApprove}, w.now)
		a := w.m.Next(w.now)
		require.True(t, w.m.Leg(a))
		end := w.goLeg(a, most, func() {
			_, told := w.m.Command(rollout.Command{Verb: rollout.VerbRollback, Actor: "ann"}, w.now)
			require.Contains(t, told, "through the steps")
		})
		require.Len(t, end.Parts, 1, "finalising is another leg's")
		end.Stopped = true // it was to be stopped, and had been through with the step by then
		w.m.EndLeg(end, w.now)
		w.byLegs()
		require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)
		require.EqualValues(t, 2, w.m.Status().CanaryReplicas, "half of its pods have gone back")
	}
}

// Parts that the machine would not have asked for, as those of another build may be, are left out: it goes on and looks by itself.
func TestPartsOfAnotherBuildAreLeftOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StylePartition, false, aStep("50%", -1, -1)), 4)
	a := w.m.Next(w.now)
	end := w.goLeg(a, 100, nil)
	end.Parts[1].Kind = ActRoute
	w.m.EndLeg(end, w.now)
	next := w.m.Next(w.now)
	require.Equal(t, ActMove, next.Kind, "the step is made once more")
	w.m.Start(next)
	w.do(next)
	require.Equal(t, rollout.WaitApproval, func() rollout.WaitKind { w.m.Next(w.now); return w.m.Status().WaitingFor.Kind }())
}
