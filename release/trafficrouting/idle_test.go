package trafficrouting

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/v1alpha1"
)

func TestDecide_WhileNoReleaseChangesTrafficRouting(t *testing.T) {
	t.Parallel()
	held := []string{"rollout/default/shop/web@1"}
	status := func(phase v1alpha1.TrafficRoutingPhase, holders ...string) v1alpha1.TrafficRoutingStatus {
		return v1alpha1.TrafficRoutingStatus{ObservedGeneration: 1, Phase: phase, Message: "no rollout holds it",
			Holders: holders}
	}
	for _, c := range []struct {
		reason string
		seen   v1alpha1.TrafficRouting
		want   Action
	}{
		{"A new one becomes healthy.", v1alpha1.TrafficRouting{Status: status(v1alpha1.TrafficInitial)},
			Action{WriteStatus: true, Phase: v1alpha1.TrafficHealthy, Message: "no rollout holds it"}},
		{"One that is shown as healthy needs nothing.",
			v1alpha1.TrafficRouting{Status: status(v1alpha1.TrafficHealthy)},
			Action{Phase: v1alpha1.TrafficHealthy, Message: "no rollout holds it"}},
		{"An edit while it is idle is observed.", v1alpha1.TrafficRouting{Generation: 2,
			Status: status(v1alpha1.TrafficHealthy)},
			Action{WriteStatus: true, Phase: v1alpha1.TrafficHealthy, Message: "no rollout holds it"}},
		{"One that another controller left as Progressing becomes healthy if no rollout holds it.",
			v1alpha1.TrafficRouting{Status: status(v1alpha1.TrafficProgressing)},
			Action{WriteStatus: true, Phase: v1alpha1.TrafficHealthy, Message: "no rollout holds it"}},
		{"While a release uses it, the release writes the status.",
			v1alpha1.TrafficRouting{Generation: 2, Status: status(v1alpha1.TrafficProgressing, held...)}, Action{}},
		{"Also while its routes are restored.", v1alpha1.TrafficRouting{Deleting: true,
			Status: status(v1alpha1.TrafficFinalizing, held...)}, Action{}},
		{"One that is deleted while held shows it.",
			v1alpha1.TrafficRouting{Deleting: true, Status: status(v1alpha1.TrafficProgressing, held...)},
			Action{WriteStatus: true, Phase: v1alpha1.TrafficTerminating,
				Message: "deleted: removed once no rollout holds it; held by web"}},
		{"It is shown once.", v1alpha1.TrafficRouting{Deleting: true,
			Status: status(v1alpha1.TrafficTerminating, held...)}, Action{}},
		{"One that is deleted while idle loses its finalizers, including those of a removed controller.",
			v1alpha1.TrafficRouting{Deleting: true,
				Finalizers: []string{"rollouts.kruise.io/trafficrouting", "progressing.rollouts.kruise.io/web"},
				Status:     status(v1alpha1.TrafficHealthy)}, Action{RemoveFinalizers: true}},
		{"A finalizer of another controller is left alone.",
			v1alpha1.TrafficRouting{Deleting: true, Finalizers: []string{"example.com/keep"},
				Status: status(v1alpha1.TrafficHealthy)}, Action{}},
	} {
		if c.seen.Generation == 0 {
			c.seen.Generation = 1
		}
		require.Equal(t, c.want, Decide(&c.seen, "web", ""), c.reason)
	}
}

// A warning is shown once, also by one that is held, and removed when it no longer holds.
func TestDecide_ShowsWarning(t *testing.T) {
	t.Parallel()
	idle := v1alpha1.TrafficRouting{Generation: 1, Status: v1alpha1.TrafficRoutingStatus{ObservedGeneration: 1,
		Phase: v1alpha1.TrafficHealthy, Message: "no rollout holds it"}}
	next := Decide(&idle, "", "its authors weren't checked")
	require.Equal(t, Action{WriteStatus: true, Phase: v1alpha1.TrafficHealthy,
		Message: "no rollout holds it. Warning: its authors weren't checked"}, next)
	idle.Status.Message = next.Message
	require.False(t, Decide(&idle, "", "its authors weren't checked").WriteStatus)
	require.True(t, Decide(&idle, "", "").WriteStatus)
	_, message := HeldStatus(&idle, "web", "its authors weren't checked")
	require.Equal(t, "held by web. Warning: its authors weren't checked", message)
}
