package plans

import (
	"fmt"

	workflowpb "go.temporal.io/api/workflow/v1"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/source"
)

// showTries adds to what a service does, before its workloads are touched, what came of it until now: a build tells how far it is, a source that has to
// be asked again why.
func showTries(service *plan.ServiceStatus, pending []*workflowpb.PendingActivityInfo) {
	for _, activity := range pending {
		said := ""
		switch activity.GetActivityType().GetName() {
		case build.ActivityResolve, build.ActivityBuild:
			said = backend.Progress(activity)
		case source.ActivityFetch, source.ActivityConfirm: // what one does now is the same once more
			if failed := activity.GetLastFailure().GetMessage(); failed != "" {
				said = fmt.Sprintf("it failed %s, and is tried again: %s", times(activity.GetAttempt()-1), failed)
			}
		}
		if said != "" {
			service.Reason += ": " + said
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
