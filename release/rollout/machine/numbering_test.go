package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// renumbering returns a world whose release has begun with a new rollout-id and the pod template that every pod has.
func renumbering(t *testing.T, style strategy.Style, change func(*Setup)) *world {
	t.Helper()
	setup := setupOf(style, true, aStep("20%", 20, -1), aStep("50%", 50, -1), aStep("100%", 100, -1))
	setup.Spec.RolloutID = "7"
	setup.Spec.Change = strategy.Change{Declared: &strategy.Declared{Template: "digest", NewID: true}}
	if change != nil {
		change(&setup)
	}
	w := newWorld(t, setup, 10)
	require.Equal(t, ActBegin, w.next().Kind)
	w.m.Done(Result{Begin: rollout.BeginResult{Replicas: 10, Stable: "r1", StableHash: "h1", StableTemplate: "digest",
		AlreadyComplete: true}}, w.now)
	return w
}

// renumberedTo requires the Move that numbers the pods of a step, and ends it.
func (w *world) renumberedTo(t *testing.T, step int) {
	t.Helper()
	move := w.next()
	require.Equal(t, ActMove, move.Kind, move.reason)
	require.True(t, move.Move.Batch.Only)
	require.Equal(t, step, move.Move.Batch.Step)
	require.Len(t, move.Move.Batch.Plan, step)
	require.Equal(t, "7", move.Move.Batch.RolloutID)
	require.Contains(t, move.reason, "rollout-id 7")
	w.m.Done(Result{Pods: rollout.MoveResult{Replicas: 10, Updated: 10, UpdatedReady: 10, StableReady: 10,
		Canary: "r1", CanaryHash: "h1", Template: "digest"}}, w.now)
}

// A new rollout-id with the same pod template goes through the steps with their approvals. No pod is replaced, so no
// Service or route is changed.
func TestRelease_WalksSteps_WhenOnlyRolloutIDIsNew(t *testing.T) {
	t.Parallel()
	for _, style := range []strategy.Style{strategy.StylePartition, strategy.StyleCanary, strategy.StyleBlueGreen} {
		w := renumbering(t, style, nil)
		waits := 2 // the last step at 100 % leaves nothing to review
		if style == strategy.StyleBlueGreen {
			waits = 3
		}
		for step := 1; step <= 3; step++ {
			w.renumberedTo(t, step)
			if step > waits {
				break
			}
			wait := w.next()
			require.Equal(t, ActWait, wait.Kind, "%s: step %d: %s", style, step, wait.reason)
			require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind, style)
			require.Equal(t, step, w.m.Status().CurrentStepIndex, style)
			outcome, message := w.send(rollout.Command{Verb: rollout.VerbApprove, Actor: "alice"}, w.now)
			require.Equal(t, audit.Accepted, outcome, message)
		}
		finish := w.next()
		require.Equal(t, ActFinish, finish.Kind, "%s: %s", style, finish.reason)
		require.Equal(t, &rollout.Batch{RolloutID: "7", Step: 3}, finish.Finish.Batch, "the others get their number")
		w.m.Done(Result{Pods: rollout.MoveResult{Replicas: 10, Updated: 10, UpdatedReady: 10, Canary: "r1",
			CanaryHash: "h1"}}, w.now)
		require.Equal(t, ActComplete, w.next().Kind)
		require.Equal(t, rollout.PhaseHealthy, w.m.Status().Phase)
		require.Nil(t, w.m.Status().Traffic, "%s: no traffic was moved", style)
	}
}

// A rollback of such a release has no pod to bring back, also if the policy rolls back in batches. The same version may
// be released with the next rollout-id without an approval: it was not found to be bad.
func TestRollback_EndsAtOnce_WhenOnlyRolloutIDIsNew(t *testing.T) {
	t.Parallel()
	w := renumbering(t, strategy.StylePartition, func(s *Setup) { s.Spec.Policy.RollbackInBatches = true })
	w.renumberedTo(t, 1)
	require.Equal(t, ActWait, w.next().Kind)
	outcome, message := w.send(rollout.Command{Verb: rollout.VerbRollback, Actor: "alice"}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	finish := w.next()
	require.Equal(t, ActFinish, finish.Kind, finish.reason)
	require.Equal(t, rollout.SideStable, finish.Finish.To)
	require.Nil(t, finish.Finish.Batch, "no further pod gets the number")
	w.m.Done(Result{Pods: rollout.MoveResult{Replicas: 10}}, w.now)
	require.Equal(t, ActComplete, w.next().Kind)
	require.Equal(t, rollout.PhaseRolledBack, w.m.Status().Phase)
	require.Empty(t, w.m.View().RolledBack)
}

// A blue-green that only numbers pods has one version: another one may replace it.
func TestBlueGreen_IsSuperseded_WhenOnlyRolloutIDIsNew(t *testing.T) {
	t.Parallel()
	w := renumbering(t, strategy.StyleBlueGreen, nil)
	w.renumberedTo(t, 1)
	require.Equal(t, ActWait, w.next().Kind)
	outcome, message := w.send(rollout.Command{Verb: rollout.VerbSupersede, Actor: "alice"}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	require.Equal(t, rollout.SideStable, w.next().Finish.To)
}

// A release that takes back an update that hung has no steps, also with a new rollout-id: its pods are broken.
func TestRelease_HasNoSteps_WhenOwnUpdateHung(t *testing.T) {
	t.Parallel()
	setup := setupOf(strategy.StylePartition, false, aStep("20%", -1, -1), aStep("100%", -1, -1))
	setup.Spec.Change = strategy.Change{Declared: &strategy.Declared{Template: "digest", NewID: true}}
	w := newWorld(t, setup, 10)
	require.Equal(t, ActBegin, w.next().Kind)
	w.m.Done(Result{Begin: rollout.BeginResult{Replicas: 10, Stable: "r1", StableHash: "h1", StableTemplate: "digest",
		AlreadyComplete: true, Over: "r2"}}, w.now)
	require.Equal(t, ActFinish, w.next().Kind)
}
