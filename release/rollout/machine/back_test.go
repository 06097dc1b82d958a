package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// A rollback in batches divides the pods that are new when it begins, also when a step is stopped in its middle: then they come to rest first, and are counted.
func TestBatchesOfARollbackAreOfWhatIsNew(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		updated int32
		does    []string
		from    int32
	}{
		{"six of eight are new: batches of six, not of the two of the step before", 6, []string{"halt", "back 20%"}, 6},
		{"in the middle of the first step there are batches too", 1, []string{"halt", "back 20%"}, 1},
		{"where no pod is new yet, nothing has to go in batches", 0, []string{"halt", "ResumeWorkload stable"}, 0},
	} {
		s := setupOf(strategy.StylePartition, false, aStep("20%", -1, -1), aStep("100%", -1, -1))
		s.Spec.Policy.RollbackInBatches = true
		w := newWorld(t, s, 10)
		w.do(w.next())
		require.Equal(t, ActMove, w.next().Kind)
		outcome, message := w.m.Command(rollout.Command{Verb: rollout.VerbRollback}, w.now)
		require.Equal(t, audit.Accepted, outcome, message)
		w.m.Stopped()
		w.actions, w.updated = nil, tc.updated
		a := w.next()
		require.True(t, a.Move.Halt && !a.Move.Back, "%s: nothing has gone back yet: %+v", tc.reason, a)
		w.do(a)
		if a = w.next(); tc.from > 0 {
			require.Equal(t, tc.from, a.Move.From, tc.reason)
		}
		w.do(a)
		require.Equal(t, tc.does[0], w.actions[0], tc.reason)
		if tc.from > 0 {
			require.Equal(t, tc.does[1], w.actions[1], tc.reason)
		}
		for w.m.Status().FinishedAt == nil {
			if a = w.drive(); a.Kind == ActRest {
				outcome, message = w.m.Command(rollout.Command{Verb: rollout.VerbApprove}, w.now)
				require.Equal(t, audit.Accepted, outcome, message)
			} else if a.Kind == ActClose {
				break
			}
		}
		require.Zero(t, w.updated, tc.reason)
	}
}

// What an earlier release left frozen is not brought home while another release holds the workload: it says so and ends, instead of asking for ever.
func TestBringingHomeGivesWayToTheLiving(t *testing.T) {
	t.Parallel()
	bringing := func() *world {
		s := setupOf(strategy.StylePartition, false, aStep("20%", -1, -1))
		s.BringHome = true
		return newWorld(t, s, 10)
	}
	w := bringing()
	require.Equal(t, ActBegin, w.next().Kind)
	w.m.Failed(Failure{Kind: failure.Claimed, Message: "claimed", Holder: "rollout/default/shop/other@1"}, w.now)
	require.Equal(t, ActAskHolder, w.next().Kind)
	w.m.Done(Result{Holder: workloadops.ClaimHolderResult{Reason: "it is at work"}}, w.now)
	require.Equal(t, ActComplete, w.next().Kind)
	require.Contains(t, w.m.s.Note, "nothing was changed")

	w = bringing()
	w.m.s.Ending = rollout.EndFrozen
	require.Equal(t, ActComplete, w.next().Kind, "a stop to frozen before the claim ends it")
}

// A workload that is scaled while a step rests, to one pod and back: the stable Service selects as its pods are, before they move.
func TestScalingToOnePodUnpinsFirst(t *testing.T) {
	t.Parallel()
	w := resting(t, strategy.StylePartition)
	look := func(size, updated int32) {
		w.size, w.actions = size, nil
		w.m.Observed(rollout.Observed{What: "edited"}, w.now)
		a := w.acts()
		require.True(t, a.Move.Look)
		w.m.Done(Result{Pods: rollout.MoveResult{Replicas: size, Updated: updated, UpdatedReady: updated, Canary: "canary", CanaryHash: "c", Template: "digest"}}, w.now)
		w.updated = updated
		require.Equal(t, rollout.WaitApproval, func() rollout.WaitKind { w.drive(); return w.m.Status().WaitingFor.Kind }())
	}
	look(1, 0)
	require.Equal(t, []string{"RestoreStableService", "move 20%", "EnsureRoutes"}, w.actions, "the last stable pod goes once its Service selects the others too")
	look(10, 2)
	require.Equal(t, "PinStableService", w.actions[0], "and is pinned again when there are stable pods again")
}

// A workload that was scaled to one pod before its first pod moved: the step finds out only when it moves.
func TestAStepThatMeetsOnePod(t *testing.T) {
	t.Parallel()
	s := setupOf(strategy.StylePartition, true, aStep("20%", 20, -1))
	s.Spec.Strategy.Paused = true
	w := newWorld(t, s, 4)
	w.drive()
	w.size, w.actions = 1, nil
	outcome, message := w.m.Command(rollout.Command{Verb: rollout.VerbResume}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	w.drive()
	require.Equal(t, []string{"PinStableService", "move 20%", "RestoreStableService", "move 20%", "EnsureRoutes"}, w.actions)
	require.Equal(t, int32(1), w.updated, "the one pod is new, and nothing is routed to a Service without pods")
}

// What was asked of a Service and not answered is not known.
func TestAnUnpinThatIsInterruptedIsNotForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, -1), aStep("100%", 100, -1)), 10)
	w.drive()
	outcome, message := w.m.Command(rollout.Command{Verb: rollout.VerbApprove}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	require.Equal(t, rollout.RouteUnpin, w.acts().Route.Action)
	outcome, message = w.m.Command(rollout.Command{Verb: rollout.VerbJump, ToStep: 1}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	w.pinned = false // it was written, and nobody heard
	w.m.Stopped()
	w.drive()
	require.True(t, w.pinned, "the step that goes on with both versions pins it again: %v", w.actions)
}

// A hint that comes while the routes are made outlives that their party does not answer.
func TestAHintOutlivesTroubleOfTheSystem(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, -1), aStep("100%", 100, -1)), 10)
	a := w.acts()
	for ; a.Kind != ActRoute || a.Route.Action != rollout.RouteEnsure; a = w.acts() {
		w.do(a)
	}
	w.m.Observed(rollout.Observed{What: "edited"}, w.now)
	w.fail(failure.Unreachable, "party alice does not answer")
	a = w.acts()
	require.Equal(t, ActMove, a.Kind)
	require.True(t, a.Move.Look, "somebody's edit is looked at before the routes wait for pods")
	w.do(a)
	require.Equal(t, rollout.RouteEnsure, w.acts().Route.Action)
}

// acts is the next thing that is done, after the pauses before it.
func (w *world) acts() Action {
	a := w.next()
	for ; !a.Activity(); a = w.next() {
		require.NotNil(w.t, a.Until, "it waits: %s", w.m.Status().Reason)
		w.now = *a.Until
	}
	return a
}
