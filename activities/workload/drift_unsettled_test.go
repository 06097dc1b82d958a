package workload

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"

	"slipway.io/slipway/activities/drift"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// A removed gate is noticed before a pod has moved, also when the rollout has recorded that its gate is in effect.
func TestHolding_IsUnsettled_WhenGateRemoved(t *testing.T) {
	t.Parallel()
	saved := rollout.Saved{Name: "order", Claim: "rollout/default/shop/order@run", Style: strategy.StylePartition,
		Stable: "r1", StableTemplate: "stable",
		Settings: map[string]json.RawMessage{"/spec/minReadySeconds": json.RawMessage("null")},
		Routings: []strategy.Routing{{Service: "order"}}}
	for _, c := range []struct {
		reason, rest string
		gated, loose bool
	}{
		{"another client has removed the gate, and no pod has moved", "", false, true},
		{"the rollout has recorded its gate", rollout.SettledState{GateSeen: 3}.String(), false, true},
		{"the gate is in place", rollout.SettledState{GateSeen: 3}.String(), true, false},
	} {
		d := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "order",
				Labels: map[string]string{workload.LabelRollout: saved.Mark()},
				Annotations: map[string]string{workload.AnnotationClaimedBy: saved.Claim,
					workload.AnnotationRollout: saved.String()}}}
		if c.rest != "" {
			d.Annotations[rollout.AnnotationSettled] = c.rest
		}
		if c.gated {
			d.Spec.MinReadySeconds = 2147483646
		}
		r := newClaimedWorkload(as(t, d))
		require.NotNil(t, r.holding, c.reason)
		require.Equal(t, c.loose, r.holding.Unsettled, c.reason)
		require.True(t, r.holding.Moving, c.reason)
	}
}

// What a rollout holds is known while its workload has the claim, also after kubectl rollout undo has replaced the
// annotation that records it.
func TestHeld_FollowsClaim(t *testing.T) {
	t.Parallel()
	saved := rollout.Saved{Name: "order", Claim: "rollout/default/shop/order@run", Style: strategy.StylePartition,
		Routings: []strategy.Routing{{Service: "order"}}}
	order := func(claim, text string) *unstructured.Unstructured {
		return as(t, &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "order", UID: "u-1",
				Labels: map[string]string{workload.LabelRollout: saved.Mark(), workload.LabelClaimed: "true"},
				Annotations: map[string]string{workload.AnnotationClaimedBy: claim,
					workload.AnnotationRollout: text}}})
	}
	synctest.Test(t, func(t *testing.T) {
		objects, typed := dynamicfake.NewSimpleDynamicClient(scheme.Scheme), fake.NewClientset()
		a := New(typed, objects, Options{Repairing: true})
		defer a.Stop()
		d := NewDriftDetector(a, typed.Discovery(), nil)
		var heard atomic.Int32
		d.OnHolding(func(h drift.Holding) {
			require.Equal(t, saved.Claim, h.Claim)
			heard.Add(1)
		})
		require.NoError(t, d.Start(t.Context()))
		defer func() { require.NoError(t, d.Stop(context.Background())) }()
		a.notifier.begin("apps/Deployment")
		synctest.Wait()
		deployments := objects.Resource(deploymentsResource).Namespace("shop")
		after := func(reason string, held bool, calls int32, _ any, err error) {
			require.NoError(t, err)
			synctest.Wait()
			h, is := d.Held(saved.Claim)
			require.Equal(t, held, is, reason)
			require.Equal(t, held, len(h.Routings) == 1, reason)
			require.Equal(t, calls, heard.Swap(0), reason)
		}
		o, err := deployments.Create(t.Context(), order(saved.Claim, saved.String()), metav1.CreateOptions{})
		after("it is claimed", true, 1, o, err)
		o, err = deployments.Update(t.Context(), order(saved.Claim, ""), metav1.UpdateOptions{})
		after("its annotation is replaced", true, 1, o, err)
		o, err = deployments.Update(t.Context(), order("task/x/1-1@run", ""), metav1.UpdateOptions{})
		after("another release has claimed it", false, 0, o, err)
		o, err = deployments.Update(t.Context(), order(saved.Claim, saved.String()), metav1.UpdateOptions{})
		after("it is claimed again", true, 1, o, err)
		after("it is deleted", false, 1, nil, deployments.Delete(t.Context(), "order", metav1.DeleteOptions{}))
	})
}
