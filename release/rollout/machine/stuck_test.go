package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

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
