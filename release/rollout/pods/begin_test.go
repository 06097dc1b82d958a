package pods_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// TestBeginOfAWorkloadInItsOwnUpdate: right after `kubectl create deployment` there is no single stable revision yet. That passes, so it is no refusal.
func TestBeginOfAWorkloadInItsOwnUpdate(t *testing.T) {
	t.Parallel()
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StylePartition)
	settled := newToy(4, `{"type":"RollingUpdate"}`).observe()
	for _, c := range []struct {
		reason string
		change func(*pods.Observed)
		want   string
	}{
		{"its controller has not made all pods of the newest template", func(o *pods.Observed) { o.Updated = 1 }, "still being updated: 1 of 4 pods"},
		{"old pods are still there", func(o *pods.Observed) { o.Total = 5 }, "4 of 4 pods are of its newest template, 5 in all"},
		{"its controller has not looked at the last change", func(o *pods.Observed) { o.Generation++ }, "has not processed its last change yet"},
		{"no ReplicaSet is there yet", func(o *pods.Observed) { o.Revisions = nil }, "has not recorded the revision"},
	} {
		seen := settled
		c.change(&seen)
		require.Empty(t, pods.Refuses(tech, subject(), seen), c.reason)
		require.Contains(t, pods.Unsettled(tech, subject(), seen), c.want, c.reason)

		ask := func(how rollout.Unsettled, elapsed time.Duration) pods.NextAction {
			seen.Elapsed = elapsed
			s := subject()
			s.DeadlineSeconds = 60
			return pods.Begin(tech, rollout.BeginRequest{Subject: s, Strategy: strategy.Strategy{Style: strategy.StylePartition}, Unsettled: how}, seen)
		}
		d := ask("", 0)
		if seen.Lagging() {
			require.Equal(t, workloadops.ActWait, d.Action, "%s: that takes a moment", c.reason)
		} else {
			require.Equal(t, workloadops.ActFail, d.Action, "%s: whoever does not wait is refused", c.reason)
			require.Equal(t, failure.Refused, d.Failure.Kind)
		}
		d = ask(rollout.UnsettledTell, 0)
		require.Equal(t, workloadops.ActDone, d.Action, c.reason)
		require.Contains(t, d.Begun.Unsettled, c.want, c.reason)
		d = ask(rollout.UnsettledWait, 59*time.Second)
		require.Equal(t, workloadops.ActWait, d.Action, c.reason)
		require.Contains(t, d.Reason, c.want, c.reason)
		d = ask(rollout.UnsettledWait, time.Minute)
		require.Equal(t, workloadops.ActFail, d.Action, c.reason)
		require.Equal(t, failure.Refused, d.Failure.Kind, "%s: nothing was done, so that the rollout ends", c.reason)
		require.Contains(t, d.Reason, "did not end within 60 s", c.reason)
	}
	require.Empty(t, pods.Unsettled(tech, subject(), settled), "a settled workload is claimed")
	d := pods.Begin(tech, rollout.BeginRequest{Subject: subject(), Strategy: strategy.Strategy{Style: strategy.StylePartition}, Unsettled: rollout.UnsettledTell}, settled)
	require.Equal(t, workloadops.ActWrite, d.Action, d.Reason)
}
