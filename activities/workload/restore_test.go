package workload_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workloads "slipway.io/slipway/activities/workload"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// secondVersion is an edit by a user that deploys another version.
const secondVersion = `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"x:second"}]}}}}`

// digest is the digest of a workload's pod template.
func (b *bench) digest(name observer.Name) string {
	b.t.Helper()
	var spec struct {
		Template map[string]any `json:"template"`
	}
	require.NoError(b.t, json.Unmarshal([]byte(b.state(name).spec), &spec))
	return pods.Digest(spec.Template)
}

// restoring is a workload at its second version, and the request that restores its first.
func (b *bench) restoring(s situation) (name observer.Name, first workloadState, req operation.Request) {
	name = observer.Name{Kind: s.kind, Name: "order"}
	s.make(b, name.Name)
	b.settled(name, s.pods)
	first = b.state(name)
	req = b.request(name, plan.Restore, s.method)
	req.Restore = &plan.Restoration{Task: "t0", Template: &revision.Revision{Template: b.digest(name)}}
	b.merge(name, secondVersion)
	if s.onHand {
		for _, p := range b.pods(name.Name) {
			require.NoError(b.t, b.kube.CoreV1().Pods(b.namespace).Delete(b.t.Context(), p.Name,
				metav1.DeleteOptions{}))
		}
	}
	b.versioned(name, "x:second", s.pods)
	return name, first, req
}

// versioned waits until all pods of a workload are ready, of this image and this number.
func (b *bench) versioned(name observer.Name, image string, n int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		list := b.pods(name.Name)
		for _, p := range list {
			if !isReady(p) || p.DeletionTimestamp != nil || p.Spec.Containers[0].Image != image {
				return false
			}
		}
		return len(list) == n && b.statusReady(name) == int32(n)
	}, patience, tick, "%s never had %d ready pods of %s", name, n, image)
}

// restorations are the workloads on which RESTORE is tested.
var restorations = map[string]situation{
	"deployment/PARALLEL": {kind: "Deployment", method: plan.Parallel, pods: 3, make: deploymentOf(3, nil)},
	"deployment/SEQUENTIAL": {kind: "Deployment", method: plan.Sequential, pods: 3, make: deploymentOf(3, nil),
		oneOut: true},
	"statefulset/PARALLEL": {kind: "StatefulSet", method: plan.Parallel, pods: 3,
		make: statefulSetOf(3, burst)},
	"statefulset/SEQUENTIAL/OnHand": {kind: "StatefulSet", method: plan.Sequential, pods: 2,
		make: statefulSetOf(2, onDelete), oneOut: true, onHand: true},
	"daemonset/SEQUENTIAL": {kind: "DaemonSet", method: plan.Sequential, pods: 4, make: daemonSetOf(nil),
		oneOut: true},
}

// RESTORE restores the earlier template of every kind, with the kind's own way of replacing pods; a repetition changes
// nothing.
func TestRestoreOperation_RestoresTemplateOfEachKind(t *testing.T) {
	t.Parallel()
	for name, s := range restorations {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			name, first, req := b.restoring(s)
			second := b.digest(name)
			watched := observer.Start(t, b.kube, b.namespace)
			result := b.must(req)
			require.Contains(t, result.Message, "restored its earlier pod template", s.reason)
			require.True(t, result.Changed)
			require.Equal(t, second, result.Before.Template)
			require.Equal(t, req.Restore.Template.Template, result.After.Template)
			b.requireTidy(name, first)
			b.versioned(name, "x:good", s.pods)
			require.Len(t, watched.Timeline(t).Created[name], s.pods, "every pod is replaced once:\n%s",
				watched.Timeline(t))
			if s.oneOut {
				watched.RequireAtMostOneUnavailable(t, name)
			}
			b.requireNothingMore(name, req)
		})
	}
}

// requireNothingMore repeats an operation, which must change nothing.
func (b *bench) requireNothingMore(name observer.Name, req operation.Request) {
	b.t.Helper()
	generation := b.state(name).generation
	b.use(b.config, workloads.Options{})
	again := b.must(req)
	require.False(b.t, again.Changed, again.Message)
	require.Equal(b.t, generation, b.state(name).generation, again.Message)
	require.Zero(b.t, b.traffic.written())
}

// Template and size are restored together, in both directions; a size that another client has set since is kept.
func TestRestoreOperation_RestoresTemplateAndSize(t *testing.T) {
	t.Parallel()
	one := int32(1)
	for name, c := range map[string]struct {
		now, before, left, want int32
		method                  plan.Method
	}{
		"FromNone":   {0, 2, 0, 2, plan.Sequential},
		"ToNone":     {2, 0, 2, 0, plan.Parallel},
		"Shrinks":    {3, 1, 3, 1, plan.Parallel},
		"Grows":      {1, 3, 1, 3, plan.Sequential},
		"Autoscaled": {2, 4, one, 2, plan.Parallel},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			name, first, req := b.restoring(situation{kind: "Deployment", method: c.method, pods: int(c.now),
				make: deploymentOf(c.now, nil)})
			req.Restore.Replicas, req.Restore.SizeAfter = &c.before, &c.left
			result := b.must(req)
			after := b.requireTidy(name, first)
			require.Equal(t, int64(c.want), after.replicas)
			b.versioned(name, "x:good", int(c.want))
			require.Equal(t, c.now, *result.FromReplicas)
			require.Equal(t, c.want, *result.ToReplicas)
			if c.want == 0 {
				require.Equal(t, "2", after.annotations[workload.AnnotationReplicas], "START finds the size")
			} else {
				require.NotContains(t, after.annotations, workload.AnnotationReplicas)
			}
			b.requireNothingMore(name, req)
		})
	}
}

// Pods that were only restarted since are not replaced.
func TestRestoreOperation_IgnoresRestarts(t *testing.T) {
	b := newBench(t)
	name, _, req := b.restoring(restorations["deployment/PARALLEL"])
	b.merge(name,
		`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"2026-01-01T00:00:00Z"}},"spec":{"containers":[{"name":"app","image":"x:good"}]}}}}`)
	b.versioned(name, "x:good", 3)
	b.requireNothingMore(name, req)
}

// A template that the cluster no longer keeps is refused before anything is written: by the preflight, and by the
// operation.
func TestRestoreOperation_RefusesWhenRevisionDeleted(t *testing.T) {
	b := newBench(t)
	name, _, req := b.restoring(situation{kind: "Deployment", method: plan.Parallel, pods: 1,
		make: deploymentOf(1, func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = new(int32) })})
	require.Eventually(t, func() bool {
		out, err := b.acts.Preflight(t.Context(), operation.PreflightRequest{Requests: []operation.Request{req}})
		require.NoError(t, err)
		return len(out.Refusals) == 1 && out.Refusals[0].Reason == "Deployment "+b.namespace+
			"/order: its cluster no longer keeps the pod template that it had before "+
			"task t0 (spec.revisionHistoryLimit, or it was deleted and created again): deploy that version again"
	}, patience, tick, "its controller drops the revision")
	generation := b.state(name).generation
	require.Contains(t, b.fails(req, failure.Refused).Message(), "no longer keeps the pod template")
	require.Equal(t, generation, b.state(name).generation)
	require.Zero(t, b.traffic.written())
}

// TestRestoreKilledAtChanges is TestKilledAtChanges for RESTORE.
func TestRestoreKilledAtChanges(t *testing.T) {
	t.Parallel()
	restoreKilled(t, []string{"deployment/SEQUENTIAL"}, func(changes int, after bool) bool {
		return changes <= 1 && (after || changes == 0)
	})
}

func TestSoakRestoreKilledAtEveryChange(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	restoreKilled(t, []string{"deployment/SEQUENTIAL", "statefulset/PARALLEL", "statefulset/SEQUENTIAL/OnHand",
		"daemonset/SEQUENTIAL"}, func(int, bool) bool { return true })
}

func restoreKilled(t *testing.T, which []string, takes func(changes int, after bool) bool) {
	t.Helper()
	for _, kind := range which {
		for changes := range 6 {
			for _, after := range []bool{false, true} {
				if !takes(changes, after) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%d/after=%t", kind, changes, after), func(t *testing.T) {
					b, s := newBench(t), restorations[kind]
					name, first, req := b.restoring(s)
					watched := observer.Start(t, b.kube, b.namespace)
					if !b.killAt(t.Context(), req, changes, after) {
						t.Logf("it ends before change %d", changes+1)
					}
					b.use(b.config, workloads.Options{})
					b.must(req)
					b.requireTidy(name, first)
					b.versioned(name, "x:good", s.pods)
					require.Len(t, watched.Timeline(t).Created[name], s.pods, "no pod may be replaced twice:\n%s",
						watched.Timeline(t))
					if s.oneOut {
						watched.RequireAtMostOneUnavailable(t, name)
					}
					b.requireNothingMore(name, req)
				})
			}
		}
	}
}

// A diff writes nothing, and reports the effect of each request.
func TestDiff(t *testing.T) {
	b := newBench(t)
	name, _, restore := b.restoring(restorations["deployment/PARALLEL"])
	generation := b.state(name).generation
	three := int32(3)
	start := b.request(name, plan.Start, plan.Parallel)
	start.Workload.Replicas = &three
	missing := b.request(observer.Name{Kind: "Deployment", Name: "nobody"}, plan.Stop, plan.Parallel)
	out, err := b.acts.Diff(t.Context(), operation.PreflightRequest{Requests: []operation.Request{restore, start,
		b.request(name, plan.Restart, plan.Parallel),
		b.request(name, plan.Stop, plan.Sequential), missing}})
	require.NoError(t, err)
	three2, none := int32(3), int32(0)
	require.Equal(t, operation.Diff{Changes: true,
		Summary: "put its earlier pod template back, so that every pod is replaced", FromReplicas: &three,
		ToReplicas: &three2, Pods: 3,
		Template: []workload.FieldChange{{Field: "spec.containers[app].image", From: "x:second", To: "x:good"}}},
		out.Workloads[0])
	require.Equal(t, operation.Diff{Summary: "nothing to do: 3 of 3 pods are ready", FromReplicas: &three,
		ToReplicas: &three}, out.Workloads[1])
	require.Equal(t, []workload.FieldChange{{Field: "metadata.annotations.slipway.io/restarted-by",
		To: "(the task)"}}, out.Workloads[2].Template)
	require.Equal(t, int32(3), out.Workloads[2].Pods)
	require.Equal(t, &none, out.Workloads[3].ToReplicas, "the final size, not that after the first step")
	require.Contains(t, out.Workloads[4].Summary, "does not exist")
	require.Equal(t, generation, b.state(name).generation)

	b.merge(name, `{"metadata":{"annotations":{"`+workload.AnnotationClaimedBy+`":"task/other/1-x@run"}}}`)
	out, err = b.acts.Diff(t.Context(), operation.PreflightRequest{Requests: []operation.Request{restore}})
	require.NoError(t, err)
	require.False(t, out.Workloads[0].Changes)
	require.Contains(t, out.Workloads[0].Summary, "is being released by task/other/1-x")
	require.NotEmpty(t, out.Workloads[0].Unknown, "what is unknown is reported")
}
