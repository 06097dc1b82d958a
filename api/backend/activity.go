package backend

import (
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"slipway.io/slipway/release/workloadops"
)

// Progress is what an activity last said: its latest heartbeat, or why its latest attempt did not succeed yet ("2 of 3 pods are ready").
func Progress(activity *workflowpb.PendingActivityInfo) string {
	failed := activity.GetLastFailure().GetMessage()
	beaten, attempted := activity.GetLastHeartbeatTime().AsTime(), activity.GetLastAttemptCompleteTime().AsTime()
	if beat := heartbeat(activity); beat != "" && !beaten.Before(attempted) {
		return beat
	}
	if failed == "" && activity.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED && activity.GetLastStartedTime() == nil {
		return "waits for a worker of its party"
	}
	return failed
}

// heartbeat is what an activity's latest heartbeat says it waits for; "" when it has none.
func heartbeat(activity *workflowpb.PendingActivityInfo) string {
	payloads := activity.GetHeartbeatDetails().GetPayloads()
	if len(payloads) == 0 {
		return ""
	}
	var told workloadops.Progress
	if converter.GetDefaultDataConverter().FromPayload(payloads[0], &told) != nil {
		return ""
	}
	return told.Message
}
