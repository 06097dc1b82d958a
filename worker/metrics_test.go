package worker

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"slipway.io/slipway/workflows"
)

// Release metrics have the labels named in docs/operations.md, regardless of the SDK's tags, and all series exist
// before the first event.
func TestReleaseMetricsHaveOnlyTheirOwnLabels(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	handler := NewMetricsHandler(registry)
	exportReleaseSeries(handler)
	handler.WithTags(map[string]string{"namespace": "default", "workflow_type": "Rollout"}).WithTags(
		map[string]string{"kind": "rollout", "outcome": "refused"}).
		Counter(workflows.MetricCommands).Inc(2)
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP slipway_release_commands_total Commands that users sent to releases, by outcome.
# TYPE slipway_release_commands_total counter
slipway_release_commands_total{kind="rollout",outcome="accepted"} 0
slipway_release_commands_total{kind="rollout",outcome="refused"} 2
slipway_release_commands_total{kind="serving",outcome="accepted"} 0
slipway_release_commands_total{kind="serving",outcome="refused"} 0
slipway_release_commands_total{kind="task",outcome="accepted"} 0
slipway_release_commands_total{kind="task",outcome="refused"} 0
`), workflows.MetricCommands))
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, len(workflows.MetricSeries()))
}

// The SDK's metrics keep the SDK's tags.
func TestMetricsOfTheSDKKeepTheirTags(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	NewMetricsHandler(registry).WithTags(map[string]string{"operation": "StartWorkflowExecution",
		"namespace": "default"}).Counter("temporal_request").Inc(1)
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP temporal_request Counted by the Temporal SDK.
# TYPE temporal_request counter
temporal_request{namespace="default",operation="StartWorkflowExecution"} 1
`)))
}
