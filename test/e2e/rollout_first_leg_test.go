package e2e

import (
	"testing"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// A rollback of a rollout whose first pods do not become ready does not wait for them, whether the workload's own
// controller replaces them or the release holds them and routes traffic.
func TestRolloutIsEndedInItsFirstStep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		provider harness.Provider
		first    strategy.Step
	}{
		"native":       {harness.NoProvider, harness.TimedStep(harness.Step("50%", -1), 0)},
		"with traffic": {harness.Nginx, harness.Step("50%", 50)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRelease(t, harness.Shared(t), deploymentCell(strategy.StylePartition, c.provider),
				func(_ map[string]any, r *harness.Rollout) {
					r.Strategy.Steps = []strategy.Step{c.first, harness.Step("100%", -1)}
					r.Image = "registry.test/" + r.Name + ":never-ready"
				})
			r.WaitRollout(r.rollout.Name, "new pods that are not ready", func(s rollout.Status) bool {
				return s.CanaryReplicas > 0
			})
			r.sendVerb("rollback", "")
			r.requireRolledBack()
		})
	}
}
