package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// A rollback in batches divides the pods that are new when it begins. If a step is interrupted, its pods are settled
// and counted first.
func TestBatchedRollback_CountsNewPodsFirst_WhenStepInterrupted(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		updated int32
		does    []string
		from    int32
	}{
		{"six of eight are new: batches of six, not of the two of the step before", 6, []string{"halt", "back 20%"}, 6},
		{"the first step, half done, is rolled back in batches too", 1, []string{"halt", "back 20%"}, 1},
		{"no pod is new yet, so nothing is rolled back in batches", 0, []string{"halt", "ResumeWorkload stable"}, 0},
	} {
		s := setupOf(strategy.StylePartition, false, aStep("20%", -1, -1), aStep("100%", -1, -1))
		s.Spec.Policy.RollbackInBatches = true
		w := newWorld(t, s, 10)
		w.do(w.next())
		require.Equal(t, ActMove, w.next().Kind)
		outcome, message := w.send(rollout.Command{Verb: rollout.VerbRollback}, w.now)
		require.Equal(t, audit.Accepted, outcome, message)
		w.actions, w.updated = nil, tc.updated
		a := w.next()
		require.True(t, a.Move.Halt && !a.Move.Back, "%s: no pod was rolled back yet: %+v", tc.reason, a)
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
			if a = w.drive(); a.Kind == ActWait {
				outcome, message = w.send(rollout.Command{Verb: rollout.VerbApprove}, w.now)
				require.Equal(t, audit.Accepted, outcome, message)
			} else if a.Kind == ActClose {
				break
			}
		}
		require.Zero(t, w.updated, tc.reason)
	}
}

// While another release holds the workload, the rollback of a frozen split reports that and ends, instead of asking for
// ever.
func TestRollBackFrozen_EndsWithoutChange_WhenClaimHolderAlive(t *testing.T) {
	t.Parallel()
	bringing := func() *world {
		s := setupOf(strategy.StylePartition, false, aStep("20%", -1, -1))
		s.RollBackFrozen = true
		return newWorld(t, s, 10)
	}
	w := bringing()
	require.Equal(t, ActBegin, w.next().Kind)
	w.m.Failed(Failure{Kind: failure.Claimed, Message: "claimed", Holder: "rollout/default/shop/other@1"}, w.now)
	require.Equal(t, ActAskHolder, w.next().Kind)
	w.m.Done(Result{Holder: workload.ClaimHolderResult{Reason: "it is at work"}}, w.now)
	require.Equal(t, ActComplete, w.next().Kind)
	require.Contains(t, w.m.s.LastMessage, "nothing was changed")

	w = bringing()
	w.m.s.Ending = rollout.EndFrozen
	require.Equal(t, ActComplete, w.next().Kind, "a stop to frozen before the claim ends it")
}

// The workload is scaled to one pod and back while a step pauses: the stable Service's selector is changed before the
// pods move.
func TestScaleToOnePod_UnpinsServiceBeforeMove(t *testing.T) {
	t.Parallel()
	w := atApproval(t, strategy.StylePartition)
	look := func(size, updated int32) {
		w.size, w.actions = size, nil
		w.hint(rollout.Observed{What: "edited"}, w.now)
		a := w.nextActivity()
		require.True(t, a.Move.Inspect)
		w.m.Done(Result{Pods: rollout.MoveResult{Replicas: size, Updated: updated, UpdatedReady: updated,
			Canary: "canary", CanaryHash: "c", Template: "digest"}}, w.now)
		w.updated = updated
		require.Equal(t, rollout.WaitApproval, func() rollout.WaitKind {
			w.drive()
			return w.m.Status().WaitingFor.Kind
		}())
	}
	look(1, 0)
	require.Equal(t, []string{"RestoreStableService", "move 20%", "EnsureRoutes"}, w.actions,
		"the last stable pod is replaced once its Service selects the others too")
	look(10, 2)
	require.Equal(t, "PinStableService", w.actions[0], "the Service is pinned again once there are stable pods again")
}

// The workload was scaled to one pod before the first pod moved: the step finds out only when it moves.
func TestStep_Unpins_WhenScaledToOnePodBeforeFirstMove(t *testing.T) {
	t.Parallel()
	s := setupOf(strategy.StylePartition, true, aStep("20%", 20, -1))
	s.Spec.Strategy.Paused = true
	w := newWorld(t, s, 4)
	w.drive()
	w.size, w.actions = 1, nil
	outcome, message := w.send(rollout.Command{Verb: rollout.VerbResume}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	w.drive()
	require.Equal(t, []string{"PinStableService", "move 20%", "RestoreStableService", "move 20%", "EnsureRoutes"},
		w.actions)
	require.Equal(t, int32(1), w.updated, "the one pod is new, and nothing is routed to a Service without pods")
}

// The state of a Service is unknown if a write to it was requested and its result is missing.
func TestInterruptedUnpin_IsPinnedAgain_AfterJumpBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, -1), aStep("100%", 100, -1)), 10)
	w.drive()
	outcome, message := w.send(rollout.Command{Verb: rollout.VerbApprove}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	require.Equal(t, rollout.RouteUnpin, w.nextActivity().Route.Action)
	outcome, message = w.send(rollout.Command{Verb: rollout.VerbJump, ToStep: 1}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	w.pinned = false // it was written, but the result was lost
	w.drive()
	require.True(t, w.pinned, "a step with both versions pins it again: %v", w.actions)
}

// A hint that comes while the routes are made is kept when the party does not answer.
func TestObservedHint_IsKept_WhenPartyUnreachable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, -1), aStep("100%", 100, -1)), 10)
	a := w.nextActivity()
	for ; a.Kind != ActRoute || a.Route.Action != rollout.RouteEnsure; a = w.nextActivity() {
		w.do(a)
	}
	w.fail(failure.Unreachable, "party alice does not answer")
	w.hint(rollout.Observed{What: "edited"}, w.now)
	a = w.nextActivity()
	require.Equal(t, ActMove, a.Kind)
	require.True(t, a.Move.Inspect, "the edit is inspected before the routes wait for pods")
	w.do(a)
	require.Equal(t, rollout.RouteEnsure, w.nextActivity().Route.Action)
}

// nextActivity returns the next activity, after the waits before it.
func (w *world) nextActivity() Action {
	a := w.next()
	for ; !a.Activity(); a = w.next() {
		require.NotNil(w.t, a.Until, "it waits: %s", w.m.Status().Reason)
		w.now = *a.Until
	}
	return a
}
