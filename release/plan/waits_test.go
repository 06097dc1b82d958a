package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// waitingService returns a service whose workloads' rollouts have these waits; "" is a workload that progresses.
func waitingService(id ServiceID, waits ...string) ServiceStatus {
	s := ServiceStatus{ServiceID: id, State: ItemRunning}
	for n, kind := range waits {
		w := WorkloadStatus{State: ItemRunning}
		if kind != "" {
			w.Rollout = &RolloutStatus{Namespace: "shop", Name: string(id),
				WaitingFor: &RolloutWait{Kind: kind, Gate: "g", Message: "it waits",
					Since: noon.Add(-time.Duration(n) * time.Minute)}}
		}
		s.Workloads = append(s.Workloads, w)
	}
	return s
}

func TestTask_ShowWait_PicksLongestWaitOfServices(t *testing.T) {
	t.Parallel()
	over := ServiceStatus{ServiceID: "over", State: ItemSucceeded}
	for _, c := range []struct {
		reason        string
		services      []ServiceStatus
		waits, says   string
		service       ServiceID
		alreadyWindow bool
	}{
		{"The only running service needs an approval.", []ServiceStatus{over, waitingService("a", "approval")},
			"approval", "rollout shop/a of service a: it waits", "a", false},
		{"A rollout waits for its own window.", []ServiceStatus{waitingService("a", "window")}, "window",
			"rollout shop/a of service a: it waits", "a", false},
		{"Waiting for pods needs no user.", []ServiceStatus{waitingService("a", "pods")}, "", "", "", false},
		{"Another service progresses, but an approval is needed.",
			[]ServiceStatus{waitingService("a", "approval"), waitingService("b", "pods")}, "", "rollout shop/a", "",
			false},
		{"Another workload of the service progresses.", []ServiceStatus{waitingService("a", "approval", "")}, "", "",
			"", false},
		{"The longest wait is shown.", []ServiceStatus{waitingService("a", "approval"),
			waitingService("b", "approval", "resume")}, "resume", "rollout shop/b", "b", false},
		{"No service runs.", []ServiceStatus{over}, "", "", "", false},
		{"The task's own wait for a window is kept.", []ServiceStatus{waitingService("a", "approval")}, "window",
			"rollout shop/a", "", true},
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
		require.Empty(t, task.WaitingFor.Gate, "the rollout's gate is not shown on the task")
	}
}
