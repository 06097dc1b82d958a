package gauges

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"slipway.io/slipway/workflows"
)

// fixedCollector collects a fixed list of metrics.
type fixedCollector []prometheus.Metric

func (f fixedCollector) Describe(into chan<- *prometheus.Desc) {
	for _, m := range f {
		into <- m.Desc()
	}
}

func (f fixedCollector) Collect(into chan<- prometheus.Metric) {
	for _, m := range f {
		into <- m
	}
}

func listed(t *testing.T, attributes map[string]any) *workflowpb.WorkflowExecutionInfo {
	t.Helper()
	fields := map[string]*commonpb.Payload{}
	for name, value := range attributes {
		payload, err := converter.GetDefaultDataConverter().ToPayload(value)
		require.NoError(t, err)
		fields[name] = payload
	}
	return &workflowpb.WorkflowExecutionInfo{SearchAttributes: &commonpb.SearchAttributes{IndexedFields: fields}}
}

func TestReleaseMetrics_CountOpenAndWaitingReleases(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	waits := func(kind string, hours int, parties ...string) *workflowpb.WorkflowExecutionInfo {
		return listed(t, map[string]any{workflows.AttributeKind.GetName(): kind,
			workflows.AttributeState.GetName():   "Progressing",
			workflows.AttributeParties.GetName(): parties, workflows.AttributeWaitingFor.GetName(): "approval",
			workflows.AttributeWaitingSince.GetName(): now.Add(-time.Duration(hours) * time.Hour)})
	}
	metrics := releaseMetrics(map[string]*workflowpb.WorkflowExecutionInfo{
		"a": waits("rollout", 2, "alice"), "b": waits("rollout", 5, "alice"), "c": waits("serving", 1, "alice", "bob"),
		"d": listed(t, map[string]any{workflows.AttributeKind.GetName(): "task",
			workflows.AttributeState.GetName(): "RUNNING"}),
	}, now)
	require.NoError(t, testutil.CollectAndCompare(fixedCollector(metrics), strings.NewReader(`
# HELP slipway_release_oldest_wait_seconds Longest current wait of a release, by kind and by what it waits for.
# TYPE slipway_release_oldest_wait_seconds gauge
slipway_release_oldest_wait_seconds{kind="rollout",waiting_for="approval"} 18000
slipway_release_oldest_wait_seconds{kind="serving",waiting_for="approval"} 3600
# HELP slipway_releases_open Open releases, by kind, state and party; a release with two parties is counted for each of them.
# TYPE slipway_releases_open gauge
slipway_releases_open{kind="rollout",party="alice",state="Progressing"} 2
slipway_releases_open{kind="serving",party="alice",state="Progressing"} 1
slipway_releases_open{kind="serving",party="bob",state="Progressing"} 1
slipway_releases_open{kind="task",party="",state="RUNNING"} 1
# HELP slipway_releases_waiting Waiting releases, by kind and by what they wait for.
# TYPE slipway_releases_waiting gauge
slipway_releases_waiting{kind="rollout",waiting_for="approval"} 2
slipway_releases_waiting{kind="serving",waiting_for="approval"} 1
`)))
}
