package plans

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	workflowpb "go.temporal.io/api/workflow/v1"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/source"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// running is a service whose workloads' rollouts wait so; "" is a workload that goes on.
func running(id plan.ServiceID, waits ...string) plan.ServiceStatus {
	s := plan.ServiceStatus{ServiceID: id, State: plan.ItemRunning}
	for n, kind := range waits {
		w := plan.WorkloadStatus{State: plan.ItemRunning}
		if kind != "" {
			w.Rollout = &plan.RolloutStatus{Namespace: "shop", Name: string(id), WaitingFor: &plan.RolloutWait{Kind: kind, Gate: "g", Message: "it waits",
				Since: noon.Add(-time.Duration(n) * time.Minute)}}
		}
		s.Workloads = append(s.Workloads, w)
	}
	return s
}

func TestWhatATaskWaitsFor(t *testing.T) {
	t.Parallel()
	over := plan.ServiceStatus{ServiceID: "over", State: plan.ItemSucceeded}
	for _, c := range []struct {
		reason        string
		services      []plan.ServiceStatus
		waits, says   string
		service       plan.ServiceID
		alreadyWindow bool
	}{
		{"Somebody has to approve: nothing else goes on.", []plan.ServiceStatus{over, running("a", "approval")}, "approval", "rollout shop/a of service a: it waits", "a", false},
		{"A window of a rollout's own.", []plan.ServiceStatus{running("a", "window")}, "window", "rollout shop/a of service a: it waits", "a", false},
		{"Pods get ready by themselves.", []plan.ServiceStatus{running("a", "pods")}, "", "", "", false},
		{"Another service goes on, and yet a person is needed.", []plan.ServiceStatus{running("a", "approval"), running("b", "pods")}, "", "rollout shop/a", "", false},
		{"Another workload of the service goes on.", []plan.ServiceStatus{running("a", "approval", "")}, "", "", "", false},
		{"The one that has waited longest is told.", []plan.ServiceStatus{running("a", "approval"), running("b", "approval", "resume")}, "resume", "rollout shop/b", "b", false},
		{"Nothing runs.", []plan.ServiceStatus{over}, "", "", "", false},
		{"A window of the task itself is what it waits for.", []plan.ServiceStatus{running("a", "approval")}, "window", "rollout shop/a", "", true},
	} {
		task := plan.Task{Reason: "wave 2 of 3", Services: c.services}
		if c.alreadyWindow {
			task.WaitingFor = &plan.RolloutWait{Kind: "window"}
		}
		showWait(&task)
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

// A source that fails is told of while it is tried again, not when ten minutes are over.
func TestASourceThatFailsIsToldOf(t *testing.T) {
	t.Parallel()
	pending := func(activity string, attempt int32, failed string) []*workflowpb.PendingActivityInfo {
		info := &workflowpb.PendingActivityInfo{ActivityType: &commonpb.ActivityType{Name: activity}, Attempt: attempt,
			State: enumspb.PENDING_ACTIVITY_STATE_SCHEDULED}
		if failed != "" {
			info.LastFailure = &failurepb.Failure{Message: failed}
		}
		return []*workflowpb.PendingActivityInfo{info}
	}
	for _, c := range []struct {
		reason  string
		pending []*workflowpb.PendingActivityInfo
		says    string
	}{
		{"The first try.", pending(source.ActivityFetch, 1, ""), "fetching package"},
		{"It failed once.", pending(source.ActivityFetch, 2, "the server answered 500"), "fetching package: it failed once, and is tried again: the server answered 500"},
		{"And again.", pending(source.ActivityConfirm, 9, "no such host"), "fetching package: it failed 8 times, and is tried again: no such host"},
		{"A branch is asked for within one try.", pending("source.Resolve", 1, "asking again: the server answered 503"),
			"fetching package: asking again: the server answered 503"},
		{"Another activity's tries are its workload's.", pending("workload.Run", 3, "2 of 3 pods are ready"), "fetching package"},
		{"Nothing runs.", nil, "fetching package"},
	} {
		service := plan.ServiceStatus{Reason: "fetching package"}
		showTries(&service, c.pending)
		require.Equal(t, c.says, service.Reason, c.reason)
	}
}
