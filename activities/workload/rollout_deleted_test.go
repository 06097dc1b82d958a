package workload_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// No other component would restore the autoscaler, and it would keep the next workload of the name at the pinned size.
func TestFinishAutoscalers_RestoresAutoscalerOfDeletedWorkload(t *testing.T) {
	for _, c := range []struct {
		reason, edit string
		again        bool
		want         [2]int32
	}{
		{reason: "no workload has its name", want: [2]int32{2, 9}},
		{reason: "a new workload has its name", again: true, want: [2]int32{2, 9}},
		{reason: "a limit that another client has set is kept", edit: `{"spec":{"maxReplicas":7}}`,
			want: [2]int32{2, 7}},
		{reason: "both limits that another client has set are kept", edit: `{"spec":{"minReplicas":3,"maxReplicas":7}}`,
			want: [2]int32{3, 7}},
		{reason: "a mark that another client has removed does not matter",
			edit: `{"metadata":{"annotations":{"slipway.io/held-by":null}}}`, want: [2]int32{2, 9}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			b := newBench(t)
			b.deployment("web", 4, own("25%", "25%"))
			b.settled(web(), 4)
			b.autoscaler("web", 2, 9)
			before := b.state(web())
			r := b.release("web", strategy.StyleBlueGreen, "x:new")
			r.begin()
			r.move(1, "50%")
			require.Equal(t, [2]int32{4, 4}, b.scaler("web"))
			b.remove("web")
			if c.again {
				b.collected()
				b.deployment("web", 4, own("25%", "25%"))
				b.settled(web(), 4)
			}
			if c.edit != "" {
				_, err := b.kube.AutoscalingV2().HorizontalPodAutoscalers(b.namespace).Patch(t.Context(), "web",
					types.MergePatchType, []byte(c.edit), metav1.PatchOptions{})
				require.NoError(t, err)
			}
			r.finish(rollout.FinishAutoscalers, rollout.SideStable)
			require.Equal(t, c.want, b.scaler("web"))
			h, err := b.kube.AutoscalingV2().HorizontalPodAutoscalers(b.namespace).Get(t.Context(), "web",
				metav1.GetOptions{})
			require.NoError(t, err)
			for name := range h.Annotations {
				require.NotContains(t, name, "slipway.io/", "nothing of the rollout is left on it")
			}
			writes := b.traffic.written()
			r.finish(rollout.FinishAutoscalers, rollout.SideStable)
			require.Equal(t, writes, b.traffic.written(), "the second time it writes nothing")
			if c.again {
				b.requireFinalised(before, "web", "x:good", 4)
			}
		})
	}
}

// What a rollout borrows or creates in addition to its workload is deleted right before it is written: that says
// nothing about the workload itself, and the rollout continues.
func TestRollout_ContinuesWhenRelatedObjectDeleted(t *testing.T) {
	t.Run("an autoscaler that is to be pinned", func(t *testing.T) {
		b := newBench(t)
		b.deployment("web", 2, own("1", "1"))
		b.settled(web(), 2)
		b.autoscaler("web", 1, 9)
		r := b.release("web", strategy.StyleBlueGreen, "x:new")
		r.begin()
		missing := b.deleteBeforePatch("/horizontalpodautoscalers/web", b.removeAutoscaler)
		require.Equal(t, int32(1), r.move(1, "50%").UpdatedReady)
		require.True(t, missing.Load())
	})
	t.Run("an autoscaler that is to be restored", func(t *testing.T) {
		b := newBench(t)
		b.deployment("web", 2, own("1", "1"))
		b.settled(web(), 2)
		before := b.state(web())
		b.autoscaler("web", 1, 9)
		r := b.release("web", strategy.StyleBlueGreen, "x:new")
		r.begin()
		r.move(1, "50%")
		missing := b.deleteBeforePatch("/horizontalpodautoscalers/web", b.removeAutoscaler)
		r.finish(rollout.FinishResumeAndRelease, rollout.SideStable)
		require.True(t, missing.Load())
		b.requireFinalised(before, "web", "x:good", 2)
	})
	t.Run("an autoscaler of a deleted workload", func(t *testing.T) {
		b := newBench(t)
		b.deployment("web", 2, own("1", "1"))
		b.settled(web(), 2)
		b.autoscaler("web", 1, 9)
		r := b.release("web", strategy.StyleBlueGreen, "x:new")
		r.begin()
		r.move(1, "50%")
		b.remove("web")
		missing := b.deleteBeforePatch("/horizontalpodautoscalers/web", b.removeAutoscaler)
		r.finish(rollout.FinishAutoscalers, rollout.SideStable)
		require.True(t, missing.Load())
	})
	t.Run("an extra workload that is to grow", func(t *testing.T) {
		b := newBench(t)
		b.deployment("web", 4, own("1", "1"))
		b.settled(web(), 4)
		before := b.state(web())
		r := b.release("web", strategy.StyleCanary, "x:new")
		r.begin()
		require.Equal(t, int32(1), r.move(1, "25%").UpdatedReady)
		missing := b.deleteBeforePatch("/deployments/web-canary", func() { b.remove("web-canary") })
		require.Equal(t, int32(2), r.move(2, "50%").UpdatedReady, "it is created again")
		require.True(t, missing.Load())
		r.finish(rollout.FinishResumeAndRelease, rollout.SideStable)
		b.requireFinalised(before, "web", "x:good", 4)
	})
}

// deleteBeforePatch deletes an object right before the activities' first patch of it.
func (b *bench) deleteBeforePatch(path string, remove func()) *atomic.Bool {
	done := &atomic.Bool{}
	b.traffic.set(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, path) && done.CompareAndSwap(false, true) {
			remove()
		}
		return nil, nil
	})
	return done
}

// remove deletes a Deployment, and waits until it is deleted.
func (b *bench) remove(name string) {
	b.t.Helper()
	require.NoError(b.t, b.kube.AppsV1().Deployments(b.namespace).Delete(b.t.Context(), name, metav1.DeleteOptions{}))
	require.Eventually(b.t, func() bool {
		_, err := b.kube.AppsV1().Deployments(b.namespace).Get(b.t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, patience, tick)
}

// collected waits until the ReplicaSets of a removed Deployment are deleted: one with the same template blocks a new
// Deployment, whose controller gives up after fifteen tries.
func (b *bench) collected() {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		sets, err := b.kube.AppsV1().ReplicaSets(b.namespace).List(b.t.Context(), metav1.ListOptions{})
		return err == nil && len(sets.Items) == 0
	}, patience, tick)
}

func (b *bench) removeAutoscaler() {
	b.t.Helper()
	require.NoError(b.t, b.kube.AutoscalingV2().HorizontalPodAutoscalers(b.namespace).Delete(context.Background(),
		"web", metav1.DeleteOptions{}))
}

// autoscaler makes an autoscaler for the Deployment with this name.
func (b *bench) autoscaler(name string, lowest, highest int32) {
	b.t.Helper()
	_, err := b.kube.AutoscalingV2().HorizontalPodAutoscalers(b.namespace).Create(b.t.Context(),
		&autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: &lowest, MaxReplicas: highest,
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment",
					Name: name}},
		}, metav1.CreateOptions{})
	require.NoError(b.t, err)
}
