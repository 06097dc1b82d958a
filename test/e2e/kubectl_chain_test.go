package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/harness"
)

// kubectlChains are kills one after another in one scenario: after each restart the engine dies at the next write.
var kubectlChains = map[string][]string{
	"a release to the end": {"controller.showProgressing.before", "controller.showProgressing.after",
		"start.record.before", "start.record.after",
		"start.workflow.before", "start.workflow.after", "command.approve.before", "command.approve.accepted"},
	"a change that is reverted before its release begins": {"controller.release.before", "controller.release.after",
		"start.record.after"},
	"a rollback by the workload": {"controller.guard.before", "controller.guard.after", "controller.hash.before",
		"controller.hash.after",
		"controller.mark.before", "controller.mark.after", "controller.showHealthy.after", "command.rollback.before",
		"command.rollback.accepted"},
	"a pause, and a jump": {"command.pause.before", "command.pause.accepted", "command.resume.before",
		"command.resume.accepted",
		"command.jump.before", "command.jump.accepted"},
	"a third version": {"controller.supersede.before", "start.record.after", "command.supersede.before",
		"command.supersede.accepted"},
	"disabled during a release": {"command.detach.before", "command.detach.accepted", "controller.letGo.before",
		"controller.letGo.after", "controller.unguard.before"},
	"deleted during a release": {"start.workflow.after", "command.detach.before", "command.detach.accepted",
		"controller.letGo.before", "controller.letGo.after", "controller.unguard.before",
		"controller.unguard.after"},
}

// The engine dies at one write after another from the creation of a Rollout object to its deletion.
func TestSoakKubectlRelease_IsRecordedOnce_WhenEngineKilledAtEachWrite(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	for _, life := range kubectlScenarios {
		t.Run(life.title, func(t *testing.T) {
			t.Parallel()
			var kills []kubectlKill
			for _, point := range kubectlChains[life.title] {
				kills = append(kills, kubectlKill{life, point, 0})
			}
			require.NotEmpty(t, kills)
			harness.Covered(t, len(kills), "kills of an engine at failpoints of releases by kubectl")
			newSupervisedGuarded(t).runScenario(t, life, kills...)
		})
	}
}
