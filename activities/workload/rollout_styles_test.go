package workload_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/observer"
)

func web() observer.Name { return observer.Name{Kind: "Deployment", Name: "web"} }

// TestPartitionLimits moves pods within the workload's own limits, and restores these exactly.
func TestPartitionLimits(t *testing.T) {
	for _, c := range []struct {
		reason         string
		change         func(*appsv1.Deployment)
		floor, ceiling int
	}{
		{"maxUnavailable 0: only surge moves it", own("0", "2"), 10, 12},
		{"maxSurge 0: only maxUnavailable moves it", own("3", "0"), 7, 10},
		{"its own defaults", func(*appsv1.Deployment) {}, 8, 13},
		{"Recreate is restored last: its pods are never all down", func(d *appsv1.Deployment) {
			d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		}, 8, 10},
	} {
		t.Run(c.reason, func(t *testing.T) {
			b := newBench(t)
			b.deployment("web", 10, c.change)
			b.settled(web(), 10)
			before := b.state(web())
			stop := b.watchFloor("web", c.floor, c.ceiling)
			r := b.release("web", strategy.StylePartition, "x:new")
			r.begin()
			require.Equal(t, int32(2), r.move(1, "20%").UpdatedReady)
			b.holds("web", map[string]int{"x:new": 2, "x:good": 8})
			require.Equal(t, int32(5), r.move(2, "50%").UpdatedReady)
			b.holds("web", map[string]int{"x:new": 5, "x:good": 5})
			require.Equal(t, int32(10), r.move(3, "100%").UpdatedReady)
			b.holds("web", map[string]int{"x:new": 10})
			r.finish(rollout.FinishResumeAndRelease, rollout.SideNew)
			b.requireFinalised(before, "web", "x:new", 10)
			stop()
		})
	}
}

// TestPartitionRollback rolls back from each step.
func TestPartitionRollback(t *testing.T) {
	for _, percent := range []string{"20%", "50%", "100%"} {
		t.Run(percent, func(t *testing.T) {
			b := newBench(t)
			b.deployment("web", 10, own("2", "1"))
			b.settled(web(), 10)
			before := b.state(web())
			r := b.release("web", strategy.StylePartition, "x:new")
			r.begin()
			r.move(1, percent)
			stop := b.watchFloor("web", 8, 11)
			r.finish(rollout.FinishResumeAndRelease, rollout.SideStable)
			stop()
			b.requireFinalised(before, "web", "x:good", 10)
		})
	}
}

// New pods are rolled back batch by batch.
func TestPartitionRollbackInBatches(t *testing.T) {
	b := newBench(t)
	b.deployment("web", 10, own("2", "0"))
	b.settled(web(), 10)
	before := b.state(web())
	stop := b.watchFloor("web", 8, 10)
	r := b.release("web", strategy.StylePartition, "x:new")
	r.begin()
	r.move(1, "80%")
	for i, c := range []struct {
		replicas string
		left     int
	}{{"25%", 6}, {"50%", 4}, {"100%", 0}} {
		req := r.moveRequest(i+1, c.replicas)
		req.Back, req.From = true, 8
		got := r.moved(req)
		// A batch is complete when its stable pods are ready; the new pods that they replace may exist a moment longer.
		require.LessOrEqual(t, got.Updated, int32(c.left+2), got.Message)
		want := map[string]int{"x:good": 10 - c.left}
		if c.left > 0 {
			want["x:new"] = c.left
		}
		b.holds("web", want)
	}
	r.finish(rollout.FinishResumeAndRelease, rollout.SideStable)
	stop()
	b.requireFinalised(before, "web", "x:good", 10)
}

// TestPartitionScaling scales a paused rollout: the split keeps its proportion.
func TestPartitionScaling(t *testing.T) {
	b := newBench(t)
	b.deployment("web", 10, own("25%", "25%"))
	b.settled(web(), 10)
	r := b.release("web", strategy.StylePartition, "x:new")
	r.begin()
	r.move(1, "20%")
	for _, c := range []struct{ size, fresh int }{{20, 4}, {5, 1}, {10, 2}} {
		b.merge(web(), `{"spec":{"replicas":`+intText(int32(c.size))+`}}`)
		want := map[string]int{"x:new": c.fresh, "x:good": c.size - c.fresh}
		b.reaches("web", want)
		req := r.moveRequest(1, "20%")
		req.Inspect = true
		got := r.moved(req)
		require.Equal(t, int32(c.size), got.Replicas)
		require.Equal(t, int32(c.fresh), got.UpdatedReady)
		b.holds("web", want)
	}
}

// TestPartitionDrift edits the template of a paused rollout as another client: an undo costs no ready pod, a new image
// at most one, and the rollout holds.
func TestPartitionDrift(t *testing.T) {
	b := newBench(t)
	b.deployment("web", 10, own("25%", "25%"))
	b.settled(web(), 10)
	r := b.release("web", strategy.StylePartition, "x:new")
	r.begin()
	r.move(1, "80%")
	stop := b.watchFloor("web", 8, 10)
	b.merge(web(),
		`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"x:good","resources":{},"imagePullPolicy":"IfNotPresent","terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}]}}}}`)
	look := r.moveRequest(1, "80%")
	look.Inspect = true
	require.Contains(t, r.moveFails(look, failure.Drift).Message(), "set its pod template back to the stable version")
	// The controller acts on an undo before the ReplicaSet of the stable pods has seen the gate: one pod may be rolled
	// back with it, but never a ready one without a replacement.
	require.GreaterOrEqual(t, b.split("web")["x:new"], 7)

	b.merge(web(), `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"x:other"}]}}}}`)
	require.Contains(t, r.moveFails(look, failure.Drift).Message(), "changed its pod template")
	look.OverwriteDrift = true
	got := r.moved(look)
	require.Equal(t, int32(8), got.UpdatedReady)
	var split map[string]int
	require.Eventually(t, func() bool {
		split = b.split("web")
		return split["x:new"] == 8 && split["x:good"]+split["x:other"] == 2
	}, patience, tick, "regardless of which pod the other edit has replaced")
	require.Equal(t, split["x:other"] > 0, strings.Contains(got.Message, "of neither version"), got.Message)
	stop()

	_, err := b.kube.AppsV1().Deployments(b.namespace).Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, b.kube.AppsV1().Deployments(b.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, err := b.kube.AppsV1().Deployments(b.namespace).Get(t.Context(), "web", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, patience, tick)
	require.Contains(t, r.moveFails(look, failure.Gone).Message(), "was deleted by another client")
}

// A Move fails with the pod's own message and the numbers so far, and never exceeds the workload's own limits.
func TestMove_FailsWithPodMessage(t *testing.T) {
	for _, style := range []strategy.Style{strategy.StylePartition, strategy.StyleCanary, strategy.StyleBlueGreen} {
		t.Run(string(style), func(t *testing.T) {
			b := newBench(t)
			b.deployment("web", 5, own("1", "1"))
			b.settled(web(), 5)
			before := b.state(web())
			r := b.release("web", style, "x:bad")
			r.deadline = 40
			r.begin()
			stop := b.watchFloor("web", 4, 8)
			err := r.moveFails(r.moveRequest(1, "60%"), failure.WorkloadFailed)
			require.Contains(t, err.Message(), "ImagePullBackOff")
			var details failure.Details
			require.NoError(t, err.Details(&details))
			require.Contains(t, string(details.Data), `"canaryHash"`)
			r.deadline = 60
			r.finish(rollout.FinishResumeAndRelease, rollout.SideStable)
			stop()
			b.requireFinalised(before, "web", "x:good", 5)
		})
	}
}

// TestBlueGreen adds new pods, keeps every old one until the end, and pins the autoscaler meanwhile.
func TestBlueGreen(t *testing.T) {
	for _, to := range []rollout.Side{rollout.SideNew, rollout.SideStable} {
		t.Run(string(to), func(t *testing.T) {
			b := newBench(t)
			b.deployment("web", 4, own("25%", "25%"))
			b.settled(web(), 4)
			before := b.state(web())
			b.autoscaler("web", 2, 9)
			touched := b.touchScaler("web")
			stop := b.watchFloor("web", 4, 8)
			r := b.release("web", strategy.StyleBlueGreen, "x:new")
			require.Empty(t, r.preflight().Refusals)
			r.begin()
			require.Equal(t, int32(2), r.move(1, "50%").UpdatedReady)
			b.reaches("web", map[string]int{"x:new": 2, "x:good": 4})
			require.Equal(t, [2]int32{4, 4}, b.scaler("web"))
			require.Equal(t, int32(4), r.move(2, "100%").UpdatedReady)
			b.holds("web", map[string]int{"x:new": 4, "x:good": 4})
			r.finish(rollout.FinishResume, to)
			r.finish(rollout.FinishRelease, to)
			stop()
			image := map[rollout.Side]string{rollout.SideNew: "x:new", rollout.SideStable: "x:good"}[to]
			b.requireFinalised(before, "web", image, 4)
			require.Equal(t, [2]int32{2, 9}, b.scaler("web"))
			require.Equal(t, int32(4), touched.Load(), "it was pinned and restored, each at the second try")
		})
	}
}

// touchScaler writes an autoscaler as its controller may at any time, right before every other patch of it; it counts
// those patches.
func (b *bench) touchScaler(name string) *atomic.Int32 {
	patches := &atomic.Int32{}
	b.traffic.set(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodPatch || !strings.Contains(r.URL.Path, "/horizontalpodautoscalers/") ||
			patches.Add(1)%2 == 0 {
			return nil, nil
		}
		touch := fmt.Appendf(nil, `{"metadata":{"annotations":{"touched":"%d"}}}`, patches.Load())
		_, err := b.kube.AutoscalingV2().HorizontalPodAutoscalers(b.namespace).Patch(r.Context(), name,
			types.MergePatchType, touch, metav1.PatchOptions{})
		return nil, err
	})
	return patches
}

func (b *bench) scaler(name string) [2]int32 {
	b.t.Helper()
	h, err := b.kube.AutoscalingV2().HorizontalPodAutoscalers(b.namespace).Get(b.t.Context(), name, metav1.GetOptions{})
	require.NoError(b.t, err)
	return [2]int32{*h.Spec.MinReplicas, h.Spec.MaxReplicas}
}

// TestExtraWorkload runs the new version in an extra workload; the workload itself is unchanged until the end.
func TestExtraWorkload(t *testing.T) {
	for _, to := range []rollout.Side{rollout.SideNew, rollout.SideStable} {
		t.Run(string(to), func(t *testing.T) {
			b := newBench(t)
			b.deployment("web", 4, own("1", "1"))
			b.settled(web(), 4)
			before := b.state(web())
			stop := b.watchFloor("web", 3, 9)
			r := b.release("web", strategy.StyleCanary, "x:new")
			r.metadata = &strategy.PodMetadata{Labels: map[string]string{"lane": "gray"},
				Annotations: map[string]string{"note": "canary"}}
			require.Empty(t, r.preflight().Refusals)
			r.begin()
			got := r.move(1, "25%")
			require.Equal(t, int32(1), got.UpdatedReady)
			require.NotEmpty(t, got.CanaryHash)
			require.Equal(t, int32(2), r.move(2, "50%").UpdatedReady)
			require.Equal(t, before.spec, b.state(web()).spec, "the workload itself is unchanged")
			b.reaches("web", map[string]int{"x:new": 2, "x:good": 4})
			pods, err := b.kube.CoreV1().Pods(b.namespace).List(t.Context(),
				metav1.ListOptions{LabelSelector: "lane=gray,slipway.io/canary-of=web,pod-template-hash=" +
					got.CanaryHash})
			require.NoError(t, err)
			require.Len(t, pods.Items, 2)
			require.Equal(t, "canary", pods.Items[0].Annotations["note"])
			r.finish(rollout.FinishResume, to)
			if to == rollout.SideNew {
				b.reaches("web", map[string]int{"x:new": 6})
			}
			r.finish(rollout.FinishRelease, to)
			stop()
			image := map[rollout.Side]string{rollout.SideNew: "x:new", rollout.SideStable: "x:good"}[to]
			b.requireFinalised(before, "web", image, 4)
			_, err = b.kube.AppsV1().Deployments(b.namespace).Get(context.Background(), "web-canary",
				metav1.GetOptions{})
			require.True(t, apierrors.IsNotFound(err))
		})
	}
}

// TestRolloutClaims refuses a workload that another release holds, rolls back a frozen split, and begins again.
func TestRolloutClaims(t *testing.T) {
	b := newBench(t)
	b.deployment("web", 4, own("1", "1"))
	b.settled(web(), 4)
	before := b.state(web())
	r := b.release("web", strategy.StylePartition, "x:new")
	r.begin()
	other := b.release("web", strategy.StylePartition, "x:other")
	taken := other.subject()
	taken.Claim = "rollout/default/ns/other@run-2"
	begin := rollout.BeginRequest{Subject: taken, Strategy: other.strategy(), Change: other.change}
	claimed := requireFailure(t, other.call(activityBegin, begin, &other.begun), failure.Claimed)
	require.Contains(t, claimed.Message(), "is being released by rollout/default/ns/web")
	held := other.preflight()
	require.Equal(t, r.subject().Claim, held.Holder)

	r.move(1, "50%")
	r.finish(rollout.FinishFreeze, rollout.SideStable)
	require.True(t, other.preflight().Frozen)
	require.NoError(t, other.call(activityBegin, begin, &other.begun))
	require.NotNil(t, other.begun.Adopted)
	require.Equal(t, strategy.StylePartition, other.begun.Adopted.Style)
	b.holds("web", map[string]int{"x:new": 2, "x:good": 2})
	var finished rollout.MoveResult
	require.NoError(t, other.call(activityFinish,
		rollout.FinishRequest{Subject: taken, Action: rollout.FinishResumeAndRelease, To: rollout.SideStable},
		&finished))
	b.requireFinalised(before, "web", "x:good", 4)
	b.settled(web(), 4)
	other.begun = rollout.BeginResult{}
	require.NoError(t, other.call(activityBegin, begin, &other.begun))
	require.Nil(t, other.begun.Adopted)

	_, err := b.kube.AppsV1().Deployments(b.namespace).Patch(t.Context(), "web", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"slipway.io/claimed-by":"somebody@else"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	lost := requireFailure(t, other.call(activityMove,
		rollout.MoveRequest{Subject: taken, Style: strategy.StylePartition, Change: other.change},
		&rollout.MoveResult{}), failure.ClaimLost)
	require.Contains(t, lost.Message(), "somebody holds it now")
}
