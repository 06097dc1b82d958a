package pods_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// TestMove_ReportsStuckPod_BeforeDeadline: a move reports at once, not only at the deadline, that an image cannot be
// pulled or that pods have made no progress for long.
func TestMove_ReportsStuckPod_BeforeDeadline(t *testing.T) {
	t.Parallel()
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StylePartition)
	w := newToy(4, `{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1,"maxUnavailable":0}}`)
	begun := pods.Begin(tech, rollout.BeginRequest{Subject: subject(),
		Strategy: strategy.Strategy{Style: strategy.StylePartition}}, w.observe())
	require.True(t, w.write(begun.Write, w.generation))
	req := rollout.MoveRequest{Subject: subject(), Step: 1, Style: strategy.StylePartition,
		Replicas: intstr.FromInt32(1), Template: newTemplate, ReportStuck: true}
	w.template, w.observed = newTemplate, w.generation
	w.sets = append(w.sets, &toySet{template: newTemplate, number: 2, asked: 1, total: 1})
	seen := w.observe()
	seen.Now, seen.Elapsed = time.Unix(1000, 0), 7*time.Second
	seen.Pods = []workload.Pod{{Name: "web-x", Revision: newTemplate, Reason: "ImagePullBackOff",
		Message: "manifest unknown", Since: seen.Now.Add(-2 * time.Second)}}
	for pods.Move(tech, req, seen).Action == workload.ActWrite { // settings come first
		d := pods.Move(tech, req, seen)
		require.True(t, w.write(d.Write, w.generation))
		w.observed = w.generation
		again := w.observe()
		again.Now, again.Elapsed, again.Pods = seen.Now, seen.Elapsed, seen.Pods
		seen = again
	}
	d := pods.Move(tech, req, seen)
	require.Equal(t, workload.ActDone, d.Action, d.Reason)
	require.Equal(t, "pod web-x: ImagePullBackOff: manifest unknown", d.Numbers.Stuck)
	require.Equal(t, int64(7), d.Numbers.SpentSeconds, "its deadline continues from there")

	seen.Pods[0].Reason, seen.Pods[0].Message = "Unschedulable", "no node has 64 GiB" // which may pass at any time
	seen.Elapsed, seen.StalledFor = 9*time.Minute, 4*time.Minute+59*time.Second
	require.Equal(t, workload.ActWait, pods.Move(tech, req, seen).Action, "short waits are not reported")
	seen.StalledFor = 5 * time.Minute
	d = pods.Move(tech, req, seen)
	require.Equal(t, workload.ActDone, d.Action, "a long wait is reported, too: %s", d.Reason)
	require.Equal(t, "pod web-x: Unschedulable: no node has 64 GiB", d.Numbers.Stuck)
	seen.PodsSeen = false
	require.Equal(t, workload.ActWait, pods.Move(tech, req, seen).Action,
		"while pods make progress, their status is not read")
	hurried := req
	hurried.DeadlineSeconds = 20
	seen.PodsSeen, seen.Elapsed, seen.StalledFor = true, 10*time.Second, 10*time.Second
	require.Equal(t, workload.ActDone, pods.Move(tech, hurried, seen).Action, "half of a short deadline is long")
	silent := seen
	silent.Pods = nil
	require.NotEmpty(t, pods.Move(tech, hurried, silent).Numbers.Stuck,
		"even without a pod's reason: an empty one would mean that all are ready")

	req.ReportStuck = false
	d = pods.Move(tech, req, seen)
	require.Equal(t, workload.ActWait, d.Action, "once reported, it waits: %s", d.Reason)
	require.Empty(t, d.Numbers.Stuck)
}
