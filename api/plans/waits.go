package plans

import (
	"fmt"
	"slices"

	workflowpb "go.temporal.io/api/workflow/v1"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/source"
)

// held are the waits of a rollout that end by a person or a calendar: nothing is done meanwhile.
var held = []string{string(rollout.WaitApproval), string(rollout.WaitResume), string(rollout.WaitDrift), string(rollout.WaitWindow)}

// heldUp is what a running service waits for by its rollouts; nil while one of its workloads goes on.
func heldUp(service plan.ServiceStatus) (longest *plan.RolloutWait) {
	for _, w := range service.Workloads {
		if w.State != plan.ItemRunning {
			continue
		}
		if w.Rollout == nil || w.Rollout.WaitingFor == nil || !slices.Contains(held, w.Rollout.WaitingFor.Kind) {
			return nil
		}
		if wait := *w.Rollout.WaitingFor; longest == nil || wait.Since.Before(longest.Since) {
			wait.Service, wait.Gate = service.ServiceID, "" // the gate is the rollout's
			wait.Message = fmt.Sprintf("%s of service %s: %s", w.Rollout, service.ServiceID, wait.Message)
			longest = &wait
		}
	}
	return longest
}

// showWait has the task itself say what its services wait for. It waits as a whole while each of those that run does.
func showWait(task *plan.Task) {
	var longest *plan.RolloutWait
	all := true
	for _, service := range task.Services {
		if service.State != plan.ItemRunning {
			continue
		}
		wait := heldUp(service)
		if all = all && wait != nil; wait != nil && (longest == nil || wait.Since.Before(longest.Since)) {
			longest = wait
		}
	}
	if longest == nil {
		return
	}
	task.Reason += "; " + longest.Message
	if all && task.WaitingFor == nil {
		task.WaitingFor = longest
	}
}

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
