package plan

import (
	"fmt"
	"slices"
)

// externalWaits are the kinds of wait of a rollout that end by a user's decision or a release window; the rollout is
// idle meanwhile.
var externalWaits = []string{"approval", "resume", "drift", WaitWindow}

// AwaitsUserOrWindow reports whether the rollout waits for a user's decision or a release window.
func (r RolloutStatus) AwaitsUserOrWindow() bool {
	return r.WaitingFor != nil && slices.Contains(externalWaits, r.WaitingFor.Kind)
}

// serviceWait returns the longest wait of a running service's rollouts; nil while one of its workloads progresses.
func serviceWait(service ServiceStatus) (longest *RolloutWait) {
	for _, w := range service.Workloads {
		if w.State != ItemRunning {
			continue
		}
		if w.Rollout == nil || !w.Rollout.AwaitsUserOrWindow() {
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

// ShowWait adds the longest wait of the task's services to the task's reason. If all running services wait, it also
// sets WaitingFor.
func (t *Task) ShowWait() {
	var longest *RolloutWait
	all := true
	for _, service := range t.Services {
		if service.State != ItemRunning {
			continue
		}
		wait := serviceWait(service)
		if all = all && wait != nil; wait != nil && (longest == nil || wait.Since.Before(longest.Since)) {
			longest = wait
		}
	}
	if longest == nil {
		return
	}
	t.Reason += "; " + longest.Message
	if all && t.WaitingFor == nil {
		t.WaitingFor = longest
	}
}
