package pods_test

import (
	"encoding/json"
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

// A move says at once why its pods are not created, and reports it after a few seconds. Only the ReplicaSet of the
// awaited version counts.
func TestMove_ReportsPodsThatAreNotCreated(t *testing.T) {
	t.Parallel()
	const denied = `admission webhook "a.b" denied the request: no`
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StylePartition)
	w := newToy(4, `{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1,"maxUnavailable":0}}`)
	begun := pods.Begin(tech, rollout.BeginRequest{Subject: subject(),
		Strategy: strategy.Strategy{Style: strategy.StylePartition}}, w.observe())
	require.True(t, w.write(begun.Write, w.generation))
	req := rollout.MoveRequest{Subject: subject(), Step: 1, Style: strategy.StylePartition,
		Replicas: intstr.FromInt32(1), Template: newTemplate, ReportStuck: true}
	w.template, w.observed = newTemplate, w.generation
	w.sets = append(w.sets, &toySet{template: newTemplate, number: 2, asked: 1})
	observe := func(ofNew bool, waited time.Duration) pods.Observed {
		seen := w.observe()
		seen.Now, seen.Elapsed, seen.StalledFor = time.Unix(1000, 0), waited, waited
		for i := range seen.Revisions {
			if (seen.Revisions[i].Template == newTemplate) == ofNew {
				seen.Revisions[i].Creation = workload.CreationFailure{Message: denied, Since: seen.Now.Add(-waited)}
			}
		}
		return seen
	}
	for range 10 { // settings come first
		d := pods.Move(tech, req, observe(true, 0))
		if d.Action != workload.ActWrite {
			break
		}
		require.True(t, w.write(d.Write, w.generation))
		w.observed = w.generation
	}
	d := pods.Move(tech, req, observe(true, time.Second))
	require.Equal(t, workload.ActWait, d.Action, d.Reason)
	require.Contains(t, d.Reason, ": its pods cannot be created: "+denied)
	require.Equal(t, 3*time.Second, d.RecheckAfter, "many failures pass within seconds")
	d = pods.Move(tech, req, observe(true, 4*time.Second))
	require.Equal(t, workload.ActDone, d.Action, d.Reason)
	require.Equal(t, "its pods cannot be created: "+denied, d.Numbers.Stuck)

	req.ReportStuck = false
	d = pods.Move(tech, req, observe(true, 4*time.Second))
	require.Equal(t, workload.ActWait, d.Action, "once reported, it waits")
	require.Equal(t, 6*time.Second, d.RecheckAfter, "until its patience ends")
	d = pods.Move(tech, req, observe(true, 10*time.Second))
	require.Equal(t, workload.ActFail, d.Action)
	require.Contains(t, d.Failure.Message, "after 10 s: its pods cannot be created: "+denied)

	d = pods.Move(tech, req, observe(false, time.Hour/10))
	require.Equal(t, workload.ActWait, d.Action, "pods of the stable version are not awaited")
	require.NotContains(t, d.Reason, denied)
}

func TestLacksPods(t *testing.T) {
	t.Parallel()
	ready := workload.Pod{Ready: true}
	set := pods.Observed{Snapshot: workload.Snapshot{Replicas: 2, PodsSeen: true, Pods: []workload.Pod{ready}}}
	require.True(t, set.LacksPods(rollout.MoveResult{}), "one is missing")
	set.Settings = map[string]json.RawMessage{workload.PathPodManagement: json.RawMessage(`"OrderedReady"`)}
	require.True(t, set.LacksPods(rollout.MoveResult{}), "all others are ready")
	set.Pods = []workload.Pod{{}}
	require.False(t, set.LacksPods(rollout.MoveResult{}), "the other one is not ready")
	set.Pods = []workload.Pod{ready, ready}
	require.False(t, set.LacksPods(rollout.MoveResult{Updated: 1, Target: 1}))
	require.True(t, set.LacksPods(rollout.MoveResult{Updated: 1, Target: 2}), "a surging pod is missing")
	set.Pods[1] = workload.Pod{}
	require.False(t, set.LacksPods(rollout.MoveResult{Updated: 1, Target: 2}), "one of them is starting")

	deployment := pods.Observed{Snapshot: workload.Snapshot{Replicas: 2, PodsSeen: true},
		Revisions: []pods.Revision{{HasCounts: true}}}
	require.False(t, deployment.LacksPods(rollout.MoveResult{CanaryHash: "5d", Target: 1}), "its ReplicaSet says why")
	require.True(t, deployment.LacksPods(rollout.MoveResult{Target: 1}), "there is no ReplicaSet")
	deployment.Generation = 2
	require.True(t, deployment.LacksPods(rollout.MoveResult{Target: 1}), "its controller can't create the ReplicaSet")
	set.Generation = 2
	require.False(t, set.LacksPods(rollout.MoveResult{Target: 2}), "its controller has not seen the change")
}
