package workload_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	workloads "slipway.io/slipway/activities/workload"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// killAt lets an attempt make this number of changes and then kills it: before the next one reaches the server, or
// after it, with its answer lost.
func (b *bench) killAt(ctx context.Context, req operation.Request, changes int, after bool) (killed bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var seen atomic.Int32
	b.traffic.set(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet || ctx.Err() == nil && int(seen.Add(1)) <= changes {
			return nil, ctx.Err()
		}
		if after {
			after = false
			response, err := b.traffic.next.RoundTrip(r)
			if err == nil {
				_ = response.Body.Close()
			}
		}
		cancel()
		return nil, context.Canceled
	})
	_, err := b.acts.Run(ctx, req)
	b.traffic.set(nil)
	return err != nil
}

// TestKilledAtChanges kills the process before and after changes of an operation, without any stored progress, and lets
// the next one continue: the outcome is the same, no pod is restarted twice, and the spec is changed no more often than
// without the kill. This test kills after the second change; TestSoakKilledAtEveryChange covers the others.
func TestKilledAtChanges(t *testing.T) {
	t.Parallel()
	killAtChanges(t, func(changes int, after bool) bool { return changes == 1 && after })
}

func TestSoakKilledAtEveryChange(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	killAtChanges(t, func(int, bool) bool { return true })
}

func killAtChanges(t *testing.T, takes func(changes int, after bool) bool) {
	t.Helper()
	for name, s := range map[string]situation{
		"deployment/RESTART/SEQUENTIAL": situations["deployment/RESTART/PARALLEL"].with(plan.Sequential),
		"statefulset/RESTART/PARALLEL":  situations["statefulset/RESTART/PARALLEL"],
		"statefulset/RESTART/OnDelete": {kind: "StatefulSet", op: plan.Restart, method: plan.Sequential, pods: 3,
			make: statefulSetOf(3, onDelete), oneOut: true},
		"daemonset/RESTART/SEQUENTIAL": {kind: "DaemonSet", op: plan.Restart, method: plan.Sequential, pods: 4,
			make: daemonSetOf(nil), oneOut: true},
		"deployment/STOP/SEQUENTIAL": situations["deployment/STOP/SEQUENTIAL"],
		"statefulset/STOP/PARALLEL":  situations["statefulset/STOP/PARALLEL"],
		"deployment/START/SEQUENTIAL": {kind: "Deployment", op: plan.Start, method: plan.Sequential, pods: 0,
			make: deploymentOf(0, nil), oneOut: true},
		"statefulset/START/PARALLEL": {kind: "StatefulSet", op: plan.Start, method: plan.Parallel, pods: 0,
			make: statefulSetOf(0, nil)},
	} {
		for changes := range 6 {
			for _, after := range []bool{false, true} {
				if !takes(changes, after) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%d/after=%t", name, changes, after), func(t *testing.T) {
					newBench(t).playKilled(s, changes, after)
				})
			}
		}
	}
}

func onDelete(s *appsv1.StatefulSet) {
	s.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
}

func (s situation) with(method plan.Method) situation {
	s.method = method
	s.oneOut = method == plan.Sequential
	return s
}

func (b *bench) playKilled(s situation, changes int, after bool) {
	name := observer.Name{Kind: s.kind, Name: "order"}
	s.make(b, name.Name)
	b.settled(name, s.pods)
	before := b.state(name)
	watched := observer.Start(b.t, b.kube, b.namespace)
	req := b.request(name, s.op, s.method)
	three := int32(3)
	req.Workload.Replicas = &three
	if !b.killAt(b.t.Context(), req, changes, after) {
		b.t.Logf("it ends before change %d", changes+1)
	}
	b.use(b.config, workloads.Options{})
	b.must(req)
	tidy := b.requireTidy(name, before)
	tl := watched.Timeline(b.t)
	switch s.op {
	case plan.Restart:
		require.Len(b.t, tl.Created[name], s.pods, "no pod may be restarted twice:\n%s", tl)
		require.Equal(b.t, "t1/1", tidy.marker)
	case plan.Start:
		require.Equal(b.t, int64(3), tidy.replicas)
		require.Len(b.t, tl.Created[name], 3, "%s", tl)
	case plan.Stop:
		require.Empty(b.t, b.pods(name.Name))
		require.Equal(b.t, "3", tidy.annotations[workload.AnnotationReplicas])
		require.Empty(b.t, tl.Created[name], "%s", tl)
	}
	if s.oneOut {
		watched.RequireAtMostOneUnavailable(b.t, name)
	}
	generation := tidy.generation
	b.use(b.config, workloads.Options{})
	again := b.must(req)
	require.Equal(b.t, generation, b.state(name).generation, "a repetition changes nothing (%s)", again.Message)
}

// The process is killed after its last write: the next attempt finds an unclaimed workload, and still returns what was
// done.
func TestRun_ReturnsResultAfterLostLastWrite(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 3, nil)
	b.settled(order, 3)
	d := b.driver(b.request(order, plan.Stop, plan.Parallel))
	b.traffic.set(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodPatch || b.traffic.written() < 1 {
			return nil, nil
		}
		response, err := b.traffic.next.RoundTrip(r)
		require.NoError(t, err)
		_ = response.Body.Close()
		b.traffic.set(nil)
		return nil, errDown
	})
	result, err := d.run()
	require.NoError(t, err)
	require.Equal(t, "stopped: no pod is left", result.Message)
	require.True(t, result.Changed)
	require.Equal(t, int32(3), *result.FromReplicas)
}

// Temporal answers that another attempt runs: this one must leave the last write to it.
func TestSupersededAttempt_SkipsLastWrite(t *testing.T) {
	b := newBench(t)
	b.use(b.config, workloads.Options{Recorder: recorder{err: notWanted}})
	b.deployment("order", 1, nil)
	b.settled(order, 1)
	req := b.request(order, plan.Stop, plan.Parallel)
	_, err := b.driver(req).run()
	require.ErrorContains(t, err, "another attempt has taken over")
	require.Equal(t, req.Claim, b.state(order).annotations[workload.AnnotationClaimedBy])
}
