package workload

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
