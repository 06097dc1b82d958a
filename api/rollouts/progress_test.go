package rollouts

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/types/known/timestamppb"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/workloadops"
)

// Temporal is asked for the pending activities first and the workflow second: what the workflow says may be the newer of the two.
func TestProgressIsShownOnlyWhileAnActivityIsWaitedFor(t *testing.T) {
	scheduled := &workflowpb.PendingActivityInfo{ActivityType: &commonpb.ActivityType{Name: rollout.ActivityMove},
		State: enumspb.PENDING_ACTIVITY_STATE_SCHEDULED}
	holding := &workflowpb.PendingActivityInfo{ActivityType: &commonpb.ActivityType{Name: rollout.ActivityHoldTraffic},
		LastFailure: &failurepb.Failure{Message: "shop/other holds it"}}
	for _, c := range []struct {
		why      string
		kind     rollout.WaitKind
		activity *workflowpb.PendingActivityInfo
		want     string
	}{
		{"the activity is what it waits for", rollout.WaitPods, scheduled, "waits for a worker of its party"},
		{"the activity ended before the workflow was asked", rollout.WaitApproval, scheduled, "as told"},
		{"so did that one, and a timer runs", rollout.WaitTimer, scheduled, "as told"},
		{"it has failed or is paused meanwhile", rollout.WaitResume, scheduled, "as told"},
		{"somebody's edit is waited for", rollout.WaitDrift, scheduled, "as told"},
		{"another release holds the traffic", rollout.WaitTraffic, holding, "shop/other holds it"},
		{"the hold ended before the workflow was asked", rollout.WaitApproval, holding, "as told"},
	} {
		status := rollout.Status{Reason: "as told", WaitingFor: &rollout.WaitingFor{Kind: c.kind, Since: time.Unix(1, 0), Message: "as told"}}
		showRolloutProgress(&status, []*workflowpb.PendingActivityInfo{c.activity})
		require.Equal(t, c.want, status.WaitingFor.Message, c.why)
		if c.want == "as told" {
			require.Equal(t, "as told", status.Reason, c.why)
		}
	}
	over := rollout.Status{Phase: rollout.PhaseCancelled, Reason: "stopped"}
	showRolloutProgress(&over, []*workflowpb.PendingActivityInfo{holding})
	require.Equal(t, rollout.Status{Phase: rollout.PhaseCancelled, Reason: "stopped"}, over, "it is over, and waits for nothing")
}

// A leg goes through steps of which its workflow hears when it is over.
func TestTheStepOfALegIsShownAsItsWorkerTellsIt(t *testing.T) {
	steps := []rollout.StepStatus{{Index: 1}, {Index: 2}, {Index: 3}}
	asked := rollout.Status{Phase: rollout.PhaseProgressing, Reason: "before the first step", CurrentStepIndex: 1, Steps: steps,
		History: []audit.Entry{{Actor: "ann"}}, WaitingFor: &rollout.WaitingFor{Kind: rollout.WaitParty}}
	told := rollout.Status{Phase: rollout.PhaseProgressing, Reason: "step 2 of 3", CurrentStepIndex: 2, NextStepIndex: 3, Steps: steps, Replicas: 5,
		CanaryReplicas: 1, CurrentStepState: rollout.StateUpgrade, WaitingFor: &rollout.WaitingFor{Kind: rollout.WaitPods}}
	updated, ready := int32(3), int32(2)
	beat := func(on rollout.Status) []*workflowpb.PendingActivityInfo {
		payloads, err := converter.GetDefaultDataConverter().ToPayloads(machine.LegProgress{Status: &on,
			Progress: workloadops.Progress{Message: "2 of 3 pods", Updated: &updated, UpdatedReady: &ready}})
		require.NoError(t, err)
		return []*workflowpb.PendingActivityInfo{{ActivityType: &commonpb.ActivityType{Name: machine.ActivityLeg}, HeartbeatDetails: payloads,
			State: enumspb.PENDING_ACTIVITY_STATE_STARTED, LastHeartbeatTime: timestamppb.Now()}}
	}
	status := asked
	showRolloutProgress(&status, beat(told))
	require.Equal(t, 2, status.CurrentStepIndex)
	require.Equal(t, "step 2 of 3", status.Reason)
	require.Equal(t, rollout.WaitPods, status.WaitingFor.Kind)
	require.Equal(t, "2 of 3 pods", status.WaitingFor.Message)
	require.Equal(t, []int32{5, 3, 2}, []int32{status.Replicas, status.CanaryReplicas, status.CanaryReadyReplicas}, "the pods' counts are newer than the step's")
	require.Len(t, status.History, 1, "what people have sent is the workflow's to tell")

	paused := asked
	paused.Paused, paused.Reason, paused.WaitingFor = true, "it holds where it is", &rollout.WaitingFor{Kind: rollout.WaitPods, Message: "it is stopped"}
	showRolloutProgress(&paused, beat(told))
	require.Equal(t, "it holds where it is", paused.Reason, "a command that was answered is not told over")
	require.Equal(t, 2, paused.CurrentStepIndex)

	back := asked
	back.CurrentStepIndex = 3
	showRolloutProgress(&back, beat(told))
	require.Equal(t, 3, back.CurrentStepIndex, "somebody has jumped on since the worker told")
}
