package rollouts

import (
	"encoding/json"

	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
)

// podCount is what an activity of a rollout says of its pods, in its heartbeat or with a failure that is tried again.
type podCount struct {
	Message      string `json:"message"`
	Updated      *int32 `json:"updated"`
	UpdatedReady *int32 `json:"updatedReady"`
}

// showRolloutProgress puts what the running activity last reported into the status: between two events of its history the workflow knows
// nothing of its pods. The activities were read before the workflow was asked: one that it does not wait for any more is over.
func showRolloutProgress(status *rollout.Status, pending []*workflowpb.PendingActivityInfo) {
	if w := status.WaitingFor; w == nil || w.Kind != rollout.WaitPods && w.Kind != rollout.WaitTraffic && w.Kind != rollout.WaitParty {
		return
	}
	for _, activity := range pending {
		switch activity.GetActivityType().GetName() {
		case rollout.ActivityBegin, rollout.ActivityMove, rollout.ActivityRoute, rollout.ActivityFinish:
			count := reported(activity)
			if count.UpdatedReady != nil {
				status.CanaryReadyReplicas = *count.UpdatedReady
			}
			if count.Updated != nil {
				status.CanaryReplicas = *count.Updated
			}
			showWait(status, backend.Progress(activity))
		case rollout.ActivityHoldTraffic: // only its latest attempt knows that it waits for another release, and for which
			if message := activity.GetLastFailure().GetMessage(); message != "" {
				status.Reason = message
				showWait(status, message)
			}
		}
	}
}

// showWait says what is waited for; the status is remembered as its workflow told it.
func showWait(status *rollout.Status, message string) {
	if message == "" {
		return
	}
	waiting := *status.WaitingFor
	waiting.Message = message
	status.WaitingFor = &waiting
}

// reported is the newest count of an activity: its latest heartbeat's, or its latest failure's.
func reported(activity *workflowpb.PendingActivityInfo) podCount {
	var beat podCount
	if payloads := activity.GetHeartbeatDetails().GetPayloads(); len(payloads) > 0 {
		_ = converter.GetDefaultDataConverter().FromPayload(payloads[0], &beat) // another form says nothing of pods
	}
	beaten := activity.GetLastHeartbeatTime().AsTime()
	if beat.UpdatedReady != nil && !beaten.Before(activity.GetLastAttemptCompleteTime().AsTime()) {
		return beat
	}
	details := activity.GetLastFailure().GetApplicationFailureInfo().GetDetails().GetPayloads()
	var told failure.Details
	var failed podCount
	if len(details) > 0 && converter.GetDefaultDataConverter().FromPayload(details[0], &told) == nil && len(told.Data) > 0 &&
		json.Unmarshal(told.Data, &failed) == nil && failed.UpdatedReady != nil {
		return failed
	}
	return beat
}
