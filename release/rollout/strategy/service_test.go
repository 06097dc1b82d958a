package strategy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout/strategy"
)

const canaryService = `workloads:
- namespace: shop
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: order}
deadlineSeconds: 90
strategy:
  canary:
    steps: [{replicas: 1}, {replicas: "100%"}]
`

// A stored service has the same strategy and policy as the one that was sent.
func TestServiceStrategy(t *testing.T) {
	t.Parallel()
	sent, wrong := strategy.DecodeService([]byte(canaryService))
	require.Empty(t, wrong)
	raw, err := json.Marshal(sent)
	require.NoError(t, err)
	var stored catalog.Service
	require.NoError(t, json.Unmarshal(raw, &stored))
	read, wrong := strategy.ReadService(stored)
	require.Empty(t, wrong)
	require.Equal(t, strategy.StylePartition, read.Strategy.Style)
	require.Len(t, read.Strategy.Steps, 2)
	require.Nil(t, read.Strategy.Steps[0].PauseSeconds, "the first step waits for an approval")
	require.EqualValues(t, 90, read.Policy.StepDeadlineSeconds,
		"a step may take as long as one operation on the service")
	spec := read.Spec(stored.Workloads[0], strategy.Change{Images: map[string]string{"app": "x:2"}})
	require.Equal(t, "order", spec.Name)
	require.Equal(t, "default", spec.Party)

	explicit, wrong := strategy.DecodeService([]byte(canaryService +
		"policy: {stepDeadlineSeconds: 30, onFailure: rollback}\n"))
	require.Empty(t, wrong)
	read, _ = strategy.ReadService(explicit)
	require.EqualValues(t, 30, read.Policy.StepDeadlineSeconds, "an explicit policy overrides the default")
	require.Equal(t, strategy.OnFailureRollback, read.Policy.OnFailure)

	none, wrong := strategy.ReadService(catalog.Service{Workloads: sent.Workloads})
	require.Empty(t, wrong)
	require.Nil(t, none, "without a strategy the workload's own update settings apply")
}

func TestServiceStrategyRefusals(t *testing.T) {
	t.Parallel()
	change := func(from, to string) string { return strings.Replace(canaryService, from, to, 1) }
	for name, test := range map[string]struct {
		reason, text, field string
		line                int
		contains            string
	}{
		"NoSteps": {"nothing would be released", change(`steps: [{replicas: 1}, {replicas: "100%"}]`, "steps: []"),
			"strategy.canary.steps", 7, "at least one step"},
		"Misspelt": {"it would be ignored", change("replicas: 1", "replica: 1"), "strategy.canary.steps[0].replica", 7,
			"did you mean"},
		"BothStyle": {"only one style is allowed", change("  canary:", "  blueGreen: {}\n  canary:"), "strategy", 5,
			"keep one"},
		"Style": {"a StatefulSet has no surge", change("kind: Deployment", "kind: StatefulSet") + "\n", "", 0, ""},
		"BlueGreen": {"a DaemonSet has no surge", strings.Replace(change("kind: Deployment", "kind: DaemonSet"),
			"canary:", "blueGreen:", 1), "strategy.blueGreen", 6, "not for a DaemonSet"},
		"Policy": {"unknown keys are refused", canaryService + "policy: {stepDeadline: 3}\n", "policy.stepDeadline",
			8, "unknown key"},
		"Approvers": {"callers aren't authenticated", canaryService + "policy: {approvals: {approvers: [ann]}}\n",
			"policy.approvals.approvers", 8, "not available yet"},
		"TwoRoutes": {
			"both would pin the Service", strings.Replace(strings.Replace(canaryService, "deadlineSeconds",
				"- namespace: shop\n  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: "+
					"other}\ndeadlineSeconds", 1),
				"    steps:", "    trafficRoutings: [{service: order, ingress: {name: order}}]\n    steps:", 1),
			"strategy.canary.trafficRoutings", 9, "put the workloads into different services",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, wrong := strategy.DecodeService([]byte(test.text))
			if test.field == "" {
				require.Empty(t, wrong, "its pods are replaced in place")
				return
			}
			require.NotEmpty(t, wrong, test.reason)
			require.Equal(t, test.field, wrong[0].Field, "%v", wrong)
			require.Equal(t, test.line, wrong[0].Line, test.reason)
			require.Contains(t, wrong[0].Reason, test.contains, test.reason)
		})
	}
}
