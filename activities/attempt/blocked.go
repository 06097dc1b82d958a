package attempt

import (
	"context"
	"strings"

	"go.temporal.io/sdk/activity"

	"slipway.io/slipway/release/workload"
)

// CountBlocked counts a wait of the workflow with this ID for pods that are not created or do not start. Its reason is
// why.
func CountBlocked(ctx context.Context, workflowID, why string) {
	if !activity.IsActivity(ctx) {
		return
	}
	kind, _, _ := strings.Cut(workflowID, "/")
	activity.GetMetricsHandler(ctx).WithTags(map[string]string{"kind": kind,
		workload.LabelCause: string(workload.CauseOf(why))}).Counter(workload.MetricBlocked).Inc(1)
}
