package e2e

import (
	"testing"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// Whoever ends a rollout whose first pods don't get ready does not wait for them: neither where its own controller replaces them, nor behind the gate and with
// traffic.
func TestRolloutIsEndedInItsFirstStep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		provider harness.Provider
		first    strategy.Step
	}{
		"native":       {harness.NoProvider, harness.Timed(harness.Step("50%", -1), 0)},
		"with traffic": {harness.Nginx, harness.Step("50%", 50)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := begin(t, harness.Shared(t), deploymentBy(strategy.StylePartition, c.provider), func(_ map[string]any, r *harness.Rollout) {
				r.Strategy.Steps = []strategy.Step{c.first, harness.Step("100%", -1)}
				r.Image = "registry.test/" + r.Name + ":never-ready"
			})
			r.WaitRollout(r.rollout.Name, "new pods that are not ready", func(s rollout.Status) bool { return s.CanaryReplicas > 0 })
			r.verb("rollback", "")
			r.endsStable()
		})
	}
}
