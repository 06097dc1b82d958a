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
	"slipway.io/slipway/release/workload"
)

// The pending activities are read before the workflow is queried: the workflow's status may be newer.
func TestShowRolloutProgress_OnlyWhenWorkflowWaitsForActivity(t *testing.T) {
	scheduled := &workflowpb.PendingActivityInfo{ActivityType: &commonpb.ActivityType{Name: machine.ActivityLeg},
		State: enumspb.PENDING_ACTIVITY_STATE_SCHEDULED}
	holding := &workflowpb.PendingActivityInfo{ActivityType: &commonpb.ActivityType{Name: rollout.ActivityHoldTraffic},
		LastFailure: &failurepb.Failure{Message: "shop/other holds it"}}
	for _, c := range []struct {
		why      string
		kind     rollout.WaitKind
		activity *workflowpb.PendingActivityInfo
		want     string
	}{
		{"the workflow waits for the activity", rollout.WaitPods, scheduled, "waits for a worker of its party"},
		{"the activity ended before the query, and an approval is awaited", rollout.WaitApproval, scheduled,
			"from workflow"},
		{"the activity ended before the query, and a timer runs", rollout.WaitTimer, scheduled, "from workflow"},
		{"the rollout has failed or was paused before the query", rollout.WaitResume, scheduled, "from workflow"},
		{"the rollout waits because of a change by another client", rollout.WaitDrift, scheduled, "from workflow"},
		{"another release holds the traffic", rollout.WaitTraffic, holding, "shop/other holds it"},
		{"the hold ended before the query", rollout.WaitApproval, holding, "from workflow"},
	} {
		status := rollout.Status{Reason: "from workflow",
			WaitingFor: &rollout.WaitingFor{Kind: c.kind, Since: time.Unix(1, 0), Message: "from workflow"}}
		showRolloutProgress(&status, []*workflowpb.PendingActivityInfo{c.activity})
		require.Equal(t, c.want, status.WaitingFor.Message, c.why)
		if c.want == "from workflow" {
			require.Equal(t, "from workflow", status.Reason, c.why)
		}
	}
	ended := rollout.Status{Phase: rollout.PhaseCancelled, Reason: "stopped"}
	showRolloutProgress(&ended, []*workflowpb.PendingActivityInfo{holding})
	require.Equal(t, rollout.Status{Phase: rollout.PhaseCancelled, Reason: "stopped"}, ended,
		"an ended rollout waits for nothing")
}

// A leg executes several steps; its workflow learns of them only when the leg has ended.
func TestShowRolloutProgress_ShowsStepReportedByLeg(t *testing.T) {
	steps := []rollout.StepStatus{{Index: 1}, {Index: 2}, {Index: 3}}
	fromWorkflow := rollout.Status{Phase: rollout.PhaseProgressing, Reason: "before the first step",
		CurrentStepIndex: 1, Steps: steps,
		History: []audit.Entry{{Actor: "ann"}}, WaitingFor: &rollout.WaitingFor{Kind: rollout.WaitParty}}
	fromLeg := rollout.Status{Phase: rollout.PhaseProgressing, Reason: "step 2 of 3", CurrentStepIndex: 2,
		NextStepIndex: 3, Steps: steps, Replicas: 5,
		CanaryReplicas: 1, CurrentStepState: rollout.StateUpgrade,
		WaitingFor: &rollout.WaitingFor{Kind: rollout.WaitPods}}
	updated, ready := int32(3), int32(2)
	beat := func(on rollout.Status) []*workflowpb.PendingActivityInfo {
		payloads, err := converter.GetDefaultDataConverter().ToPayloads(machine.LegProgress{Status: &on,
			PartNumber: 1,
			Progress:   workload.Progress{Message: "2 of 3 pods", Updated: &updated, UpdatedReady: &ready}})
		require.NoError(t, err)
		return []*workflowpb.PendingActivityInfo{{ActivityType: &commonpb.ActivityType{Name: machine.ActivityLeg},
			HeartbeatDetails: payloads,
			State:            enumspb.PENDING_ACTIVITY_STATE_STARTED, LastHeartbeatTime: timestamppb.Now()}}
	}
	status := fromWorkflow
	showRolloutProgress(&status, beat(fromLeg))
	require.Equal(t, 2, status.CurrentStepIndex)
	require.Equal(t, "step 2 of 3", status.Reason)
	require.Equal(t, rollout.WaitPods, status.WaitingFor.Kind)
	require.Equal(t, "2 of 3 pods", status.WaitingFor.Message)
	require.Equal(t, []int32{5, 3, 2}, []int32{status.Replicas, status.CanaryReplicas, status.CanaryReadyReplicas},
		"the pods' counts are newer than the step's")
	require.Len(t, status.History, 1, "the history of commands comes from the workflow")

	paused := fromWorkflow
	paused.Paused, paused.Reason, paused.WaitingFor = true, "paused by a user",
		&rollout.WaitingFor{Kind: rollout.WaitPods, Message: "paused"}
	showRolloutProgress(&paused, beat(fromLeg))
	require.Equal(t, "paused by a user", paused.Reason, "a heartbeat does not overwrite the reason of a pause")
	require.Equal(t, "paused", paused.WaitingFor.Message)
	require.Equal(t, 1, paused.CurrentStepIndex, "nor is the step of another moment shown beside it")
	require.Zero(t, paused.CanaryReplicas, "nor its pods")

	ahead := fromWorkflow
	ahead.CurrentStepIndex = 3
	showRolloutProgress(&ahead, beat(fromLeg))
	require.Equal(t, 3, ahead.CurrentStepIndex, "a user has jumped to a later step since the heartbeat")
}
