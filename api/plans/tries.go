package plans

import (
	"fmt"

	workflowpb "go.temporal.io/api/workflow/v1"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/source"
)

// showAttempts adds the progress of the activities that run before a service's workloads are changed: the progress of a
// build, or the last failure of a source that is retried.
func showAttempts(service *plan.ServiceStatus, pending []*workflowpb.PendingActivityInfo) {
	for _, activity := range pending {
		progress := ""
		switch activity.GetActivityType().GetName() {
		case build.ActivityResolve, build.ActivityBuild:
			progress = backend.Progress(activity)
		case source.ActivityFetch, source.ActivityConfirm: // a heartbeat would only repeat the service's reason
			if failed := activity.GetLastFailure().GetMessage(); failed != "" {
				progress = fmt.Sprintf("it failed %s and is being retried: %s", times(activity.GetAttempt()-1), failed)
			}
		}
		if progress != "" {
			service.Reason += ": " + progress
			return
		}
	}
}

func times(n int32) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
