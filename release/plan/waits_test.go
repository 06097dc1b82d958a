package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// waitingService is a service whose workloads' rollouts wait so; "" is a workload that goes on.
func waitingService(id ServiceID, waits ...string) ServiceStatus {
	s := ServiceStatus{ServiceID: id, State: ItemRunning}
	for n, kind := range waits {
		w := WorkloadStatus{State: ItemRunning}
		if kind != "" {
			w.Rollout = &RolloutStatus{Namespace: "shop", Name: string(id), WaitingFor: &RolloutWait{Kind: kind, Gate: "g", Message: "it waits",
				Since: noon.Add(-time.Duration(n) * time.Minute)}}
		}
		s.Workloads = append(s.Workloads, w)
	}
	return s
}

func TestWhatATaskWaitsFor(t *testing.T) {
	t.Parallel()
	over := ServiceStatus{ServiceID: "over", State: ItemSucceeded}
	for _, c := range []struct {
		reason        string
		services      []ServiceStatus
		waits, says   string
		service       ServiceID
		alreadyWindow bool
	}{
		{"Somebody has to approve: nothing else goes on.", []ServiceStatus{over, waitingService("a", "approval")}, "approval", "rollout shop/a of service a: it waits", "a", false},
		{"A window of a rollout's own.", []ServiceStatus{waitingService("a", "window")}, "window", "rollout shop/a of service a: it waits", "a", false},
		{"Pods get ready by themselves.", []ServiceStatus{waitingService("a", "pods")}, "", "", "", false},
		{"Another service goes on, and yet a person is needed.", []ServiceStatus{waitingService("a", "approval"), waitingService("b", "pods")}, "", "rollout shop/a", "", false},
		{"Another workload of the service goes on.", []ServiceStatus{waitingService("a", "approval", "")}, "", "", "", false},
		{"The one that has waited longest is told.", []ServiceStatus{waitingService("a", "approval"), waitingService("b", "approval", "resume")}, "resume", "rollout shop/b", "b", false},
		{"Nothing runs.", []ServiceStatus{over}, "", "", "", false},
		{"A window of the task itself is what it waits for.", []ServiceStatus{waitingService("a", "approval")}, "window", "rollout shop/a", "", true},
	} {
		task := Task{Reason: "wave 2 of 3", Services: c.services}
		if c.alreadyWindow {
			task.WaitingFor = &RolloutWait{Kind: "window"}
		}
		task.ShowWait()
		require.Contains(t, task.Reason, c.says, c.reason)
		if c.says == "" {
			require.Equal(t, "wave 2 of 3", task.Reason, c.reason)
		}
		if c.waits == "" {
			require.Nil(t, task.WaitingFor, c.reason)
			continue
		}
		require.NotNil(t, task.WaitingFor, c.reason)
		require.Equal(t, c.waits, task.WaitingFor.Kind, c.reason)
		require.Equal(t, c.service, task.WaitingFor.Service, c.reason)
		require.Empty(t, task.WaitingFor.Gate, "a gate of the rollout's is not for the task")
	}
}
