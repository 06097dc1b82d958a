package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// unsettled returns a rollout whose workload's own update is under way.
func unsettled(t *testing.T) *world {
	setup := setupOf(strategy.StylePartition, false, aStep("100%", -1, 0))
	setup.Spec.Policy.SettleSeconds = 60
	w := newWorld(t, setup, 4)
	a := w.next()
	require.Equal(t, rollout.UnsettledReport, a.Begin.Unsettled,
		"it does not wait at first: a settled workload is claimed at once")
	w.m.Done(Result{Begin: rollout.BeginResult{Replicas: 4,
		Unsettled: "Deployment shop/order is still being updated: 1 of 4 pods are of its newest template, 4 in all"}},
		w.now)
	return w
}

func TestBegin_WaitsForWorkloadsOwnUpdate(t *testing.T) {
	t.Parallel()
	w := unsettled(t)
	a := w.next()
	require.Equal(t, ActBegin, a.Kind)
	require.Equal(t, rollout.UnsettledWait, a.Begin.Unsettled)
	require.Equal(t, int64(60), a.Begin.DeadlineSeconds, "as long as the policy says, not a step's deadline")
	s := w.m.Status()
	require.Equal(t, rollout.WaitPods, s.WaitingFor.Kind)
	require.Equal(t, "Deployment shop/order is still being updated: 1 of 4 pods are of its newest template, 4 in all; "+
		"the release begins by itself when that is done, and ends if it takes longer than 1m0s", s.Reason)
	w.do(a)
	require.Equal(t, ActClose, w.drive().Kind)
	require.Equal(t, rollout.PhaseHealthy, w.m.Status().Phase)
}

func TestBegin_EndsWithoutChange_WhenWorkloadDoesNotSettle(t *testing.T) {
	t.Parallel()
	w := unsettled(t)
	w.next()
	w.fail(failure.Refused, "Deployment shop/order is still being updated, and that did not end within 60 s")
	require.Equal(t, ActClose, w.drive().Kind)
	s := w.m.Status()
	require.Equal(t, rollout.PhaseFailed, s.Phase)
	require.Contains(t, s.Reason, "did not end within 60 s")
	require.Equal(t, []string{"record"}, w.actions, "nothing was claimed, so nothing is restored")
}

func TestStop_InterruptsBegin_WhileWorkloadSettles(t *testing.T) {
	t.Parallel()
	for verb, phase := range map[rollout.Verb]rollout.Phase{rollout.VerbRollback: rollout.PhaseRolledBack,
		rollout.VerbStop: rollout.PhaseRolledBack} {
		w := unsettled(t)
		w.next()
		outcome, text := w.send(rollout.Command{Verb: verb}, w.now)
		require.Equal(t, audit.Accepted, outcome, text)
		a := w.next()
		require.Equal(t, rollout.UnsettledReport, a.Begin.Unsettled,
			"it is unknown whether the interrupted Begin took the claim: it is repeated without waiting")
		w.m.Done(Result{Begin: rollout.BeginResult{Replicas: 4, Unsettled: "still being updated"}}, w.now)
		require.Equal(t, ActClose, w.drive().Kind)
		require.Equal(t, phase, w.m.Status().Phase)
	}
}

func TestBegin_KeepsWaiting_WhenPartyUnreachableWhileSettling(t *testing.T) {
	t.Parallel()
	w := unsettled(t)
	w.next()
	w.m.Failed(Failure{Kind: failure.Unreachable, Message: "no route", SpentSeconds: 40}, w.now)
	a := w.next()
	require.Equal(t, rollout.UnsettledWait, a.Begin.Unsettled)
	require.Equal(t, int64(40), a.Begin.SpentSeconds, "the spent time is kept")
	require.Equal(t, rollout.WaitParty, w.m.Status().WaitingFor.Kind)
}

func TestBegin_DoesNotWait_WithoutSettleSeconds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StylePartition, false, aStep("100%", -1, 0)), 4)
	require.Empty(t, w.next().Begin.Unsettled, "0 seconds, and rollouts of builds before settleSeconds existed")
}
