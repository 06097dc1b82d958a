package plan

import (
	"fmt"
	"slices"
)

// held are the waits of a rollout that end by a person or a calendar: nothing is done meanwhile.
var held = []string{"approval", "resume", "drift", WaitWindow}

// Held says whether the rollout waits for a person or a calendar.
func (r RolloutStatus) Held() bool {
	return r.WaitingFor != nil && slices.Contains(held, r.WaitingFor.Kind)
}

// heldUp is what a running service waits for by its rollouts; nil while one of its workloads goes on.
func heldUp(service ServiceStatus) (longest *RolloutWait) {
	for _, w := range service.Workloads {
		if w.State != ItemRunning {
			continue
		}
		if w.Rollout == nil || !w.Rollout.Held() {
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

// ShowWait has the task itself say what its services wait for. It waits as a whole while each of those that run does.
func (t *Task) ShowWait() {
	var longest *RolloutWait
	all := true
	for _, service := range t.Services {
		if service.State != ItemRunning {
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
	t.Reason += "; " + longest.Message
	if all && t.WaitingFor == nil {
		t.WaitingFor = longest
	}
}
