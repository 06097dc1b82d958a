package workload

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// TestATemplateThatWasLetGo is noticed before a pod has moved, also where the rollout has noted that its gate comes first.
func TestATemplateThatWasLetGo(t *testing.T) {
	t.Parallel()
	saved := rollout.Saved{Name: "order", Claim: "rollout/default/shop/order@run", Style: strategy.StylePartition, Stable: "r1", StableTemplate: "stable",
		Settings: map[string]json.RawMessage{"/spec/minReadySeconds": json.RawMessage("null")}, Routings: []strategy.Routing{{Service: "order"}}}
	for _, c := range []struct {
		reason, rest string
		gated, loose bool
	}{
		{"somebody has taken the gate away, and no pod has come", "", false, true},
		{"the rollout has noted its gate", rollout.Rest{GateSeen: 3}.String(), false, true},
		{"the gate stands", rollout.Rest{GateSeen: 3}.String(), true, false},
	} {
		d := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "order",
			Labels:      map[string]string{workloadops.LabelRollout: saved.Mark()},
			Annotations: map[string]string{workloadops.AnnotationClaimedBy: saved.Claim, rollout.AnnotationSaved: saved.String()}}}
		if c.rest != "" {
			d.Annotations[rollout.AnnotationRest] = c.rest
		}
		if c.gated {
			d.Spec.MinReadySeconds = 2147483646
		}
		r := newResting(as(t, d))
		require.NotNil(t, r.holding, c.reason)
		require.Equal(t, c.loose, r.holding.Loose, c.reason)
		require.True(t, r.holding.Moves, c.reason)
	}
}
