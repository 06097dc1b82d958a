package kruise

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
)

// The warning about authors is part of each status: the controller sets and removes it, and a release keeps it.
func TestUnchecked_StaysInStatus(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	object := &v1beta1.Rollout{}
	s := Snapshot{Object: object, Unchecked: "not checked", Now: now}
	next := s.writeStatus(IdleStatus(object, nil, now), "")
	require.Equal(t, DoWriteStatus, next.Kind)
	require.Equal(t, "not checked", IsUnchecked(*next.Status))

	object.Status = *next.Status
	s.Now = now.Add(time.Hour)
	require.Equal(t, DoNothing, s.writeStatus(IdleStatus(object, nil, s.Now), "").Kind, "it is written once")
	released := ReleaseStatus(rollout.View{}, object, s.Now)
	require.Equal(t, "not checked", IsUnchecked(released), "a release keeps it")
	object.Status = released
	require.Equal(t, DoNothing, s.writeStatus(released, "").Kind)

	s.Unchecked = ""
	next = s.writeStatus(released, "")
	require.Equal(t, DoWriteStatus, next.Kind)
	require.Empty(t, IsUnchecked(*next.Status), "it ends with the proof")
}

func TestAuthoredBy(t *testing.T) {
	t.Parallel()
	routes := []v1beta1.TrafficRoutingRef{{Service: "web", Ingress: &v1beta1.IngressRef{Name: "web"}}}
	for name, c := range map[string]struct {
		strategy v1beta1.RolloutStrategy
		refers   bool
	}{
		"None":      {v1beta1.RolloutStrategy{Canary: &v1beta1.CanaryStrategy{}}, false},
		"Shared":    {v1beta1.RolloutStrategy{Canary: &v1beta1.CanaryStrategy{TrafficRoutingRef: "a"}}, false},
		"Canary":    {v1beta1.RolloutStrategy{Canary: &v1beta1.CanaryStrategy{TrafficRoutings: routes}}, true},
		"BlueGreen": {v1beta1.RolloutStrategy{BlueGreen: &v1beta1.BlueGreenStrategy{TrafficRoutings: routes}}, true},
	} {
		_, refers := AuthoredBy(&v1beta1.Rollout{Spec: v1beta1.RolloutSpec{Strategy: c.strategy}})
		require.Equal(t, c.refers, refers, name)
	}
}
