package attempt

import (
	"context"
	"strings"

	"go.temporal.io/sdk/activity"

	"slipway.io/slipway/release/workload"
)

// MetricBlocked counts the waits of releases for pods that are not created or do not start. Labels kind and cause
// (workload.Causes).
const MetricBlocked = "slipway_release_blocked_total"

// CountBlocked counts such a wait of the workflow with this ID, whose reason is why.
func CountBlocked(ctx context.Context, workflowID, why string) {
	if !activity.IsActivity(ctx) {
		return
	}
	kind, _, _ := strings.Cut(workflowID, "/")
	activity.GetMetricsHandler(ctx).WithTags(map[string]string{"kind": kind,
		"cause": string(workload.CauseOf(why))}).Counter(MetricBlocked).Inc(1)
}
