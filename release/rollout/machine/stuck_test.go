package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

func TestReason_NamesStuckPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StylePartition, false, aStep("50%", -1, -1), aStep("100%", -1, 0)), 4)
	w.do(w.next())
	a := w.next()
	require.True(t, a.Move.ReportStuck)
	require.False(t, w.m.PodStuck())
	stuck := w.numbers()
	stuck.Stuck, stuck.SpentSeconds = "pod web-x: ImagePullBackOff: manifest unknown", 7
	w.m.Done(Result{Pods: stuck}, w.now)
	a = w.next()
	require.Equal(t, ActMove, a.Kind, "the Move continues")
	require.False(t, a.Move.ReportStuck, "the trouble is not reported again")
	require.Equal(t, int64(7), a.Move.SpentSeconds, "its deadline continues")
	require.True(t, w.m.PodStuck())
	s := w.m.Status()
	require.Equal(t, rollout.WaitPods, s.WaitingFor.Kind)
	require.Contains(t, s.Reason, "of the new version and ready: pod web-x: ImagePullBackOff: manifest unknown")
	w.do(a)
	w.next()
	require.False(t, w.m.PodStuck(), "the trouble has passed")
	require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind)
}

// A pod is in trouble until a Move of its step reports otherwise, also if the leg is stopped meanwhile.
func TestStuckPod_IsKept_WhenLegIsStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StylePartition, false, aStep("50%", -1, -1), aStep("100%", -1, 0)), 4)
	w.do(w.next())
	w.next()
	stuck := w.numbers()
	stuck.Stuck = "pod web-x: ImagePullBackOff: manifest unknown"
	w.m.Done(Result{Pods: stuck}, w.now)
	w.m.EndLeg(LegEnd{Stopped: true}, w.now)
	a := w.next()
	require.True(t, w.m.PodStuck())
	require.Contains(t, a.reason, stuck.Stuck)
	outcome, text := w.send(rollout.Command{Verb: rollout.VerbJump, ToStep: 2}, w.now)
	require.Equal(t, audit.Accepted, outcome, text)
	w.next()
	require.False(t, w.m.PodStuck(), "another step begins without it")
}
