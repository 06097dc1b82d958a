package trafficrouting

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/v1alpha1"
)

func TestWhatIsDoneAboutATrafficRoutingThatNoReleaseChanges(t *testing.T) {
	t.Parallel()
	held := []string{"rollout/default/shop/web@1"}
	status := func(phase v1alpha1.TrafficRoutingPhase, holders ...string) v1alpha1.TrafficRoutingStatus {
		return v1alpha1.TrafficRoutingStatus{ObservedGeneration: 1, Phase: phase, Holders: holders}
	}
	for _, c := range []struct {
		reason string
		seen   v1alpha1.TrafficRouting
		want   Unattended
	}{
		{"One that somebody has just made is healthy.", v1alpha1.TrafficRouting{Status: status(v1alpha1.TrafficInitial)},
			Unattended{Show: true, Phase: v1alpha1.TrafficHealthy, Message: "no rollout holds it"}},
		{"One that shows it needs nothing.", v1alpha1.TrafficRouting{Status: status(v1alpha1.TrafficHealthy)},
			Unattended{Phase: v1alpha1.TrafficHealthy, Message: "no rollout holds it"}},
		{"An edit at rest is seen.", v1alpha1.TrafficRouting{Generation: 2, Status: status(v1alpha1.TrafficHealthy)},
			Unattended{Show: true, Phase: v1alpha1.TrafficHealthy, Message: "no rollout holds it"}},
		{"What another controller has left as in use is at rest when nobody holds it.", v1alpha1.TrafficRouting{Status: status(v1alpha1.TrafficProgressing)},
			Unattended{Show: true, Phase: v1alpha1.TrafficHealthy, Message: "no rollout holds it"}},
		{"While a release uses it, that writes the status.", v1alpha1.TrafficRouting{Generation: 2, Status: status(v1alpha1.TrafficProgressing, held...)}, Unattended{}},
		{"While the routes are given back as well.", v1alpha1.TrafficRouting{Deleting: true, Status: status(v1alpha1.TrafficFinalizing, held...)}, Unattended{}},
		{"One that is deleted while it is held says so.", v1alpha1.TrafficRouting{Deleting: true, Status: status(v1alpha1.TrafficProgressing, held...)},
			Unattended{Show: true, Phase: v1alpha1.TrafficTerminating, Message: "deleted: it goes when it isn't held any more; held by web"}},
		{"It says it once.", v1alpha1.TrafficRouting{Deleting: true, Status: status(v1alpha1.TrafficTerminating, held...)}, Unattended{}},
		{"One that is deleted at rest goes, whatever a removed controller has left on it.", v1alpha1.TrafficRouting{Deleting: true,
			Finalizers: []string{"rollouts.kruise.io/trafficrouting", "progressing.rollouts.kruise.io/web"}, Status: status(v1alpha1.TrafficHealthy)}, Unattended{Free: true}},
		{"Somebody else's finalizer is theirs.", v1alpha1.TrafficRouting{Deleting: true, Finalizers: []string{"example.com/keep"}, Status: status(v1alpha1.TrafficHealthy)}, Unattended{}},
	} {
		if c.seen.Generation == 0 {
			c.seen.Generation = 1
		}
		require.Equal(t, c.want, Look(&c.seen, "web"), c.reason)
	}
}
