package rollouts

import (
	"encoding/json"

	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
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
		case machine.ActivityLeg:
			showLeg(status, activity)
			showPods(status, activity)
		case rollout.ActivityBegin, rollout.ActivityMove, rollout.ActivityRoute, rollout.ActivityFinish:
			showPods(status, activity)
		case rollout.ActivityHoldTraffic: // only its latest attempt knows that it waits for another release, and for which
			if message := activity.GetLastFailure().GetMessage(); message != "" {
				status.Reason = message
				showWait(status, message)
			}
		}
	}
}

// showPods puts the newest count of the pods into the status, and what is waited for.
func showPods(status *rollout.Status, activity *workflowpb.PendingActivityInfo) {
	count := reported(activity)
	if count.UpdatedReady != nil {
		status.CanaryReadyReplicas = *count.UpdatedReady
	}
	if count.Updated != nil {
		status.CanaryReplicas = *count.Updated
	}
	showWait(status, backend.Progress(activity))
}

// showLeg puts how far a leg has gone into the status: its workflow hears of the leg's steps when it is over. What people have commanded meanwhile is the
// workflow's to tell.
func showLeg(status *rollout.Status, activity *workflowpb.PendingActivityInfo) {
	var told machine.LegProgress
	payloads := activity.GetHeartbeatDetails().GetPayloads()
	if len(payloads) == 0 || converter.GetDefaultDataConverter().FromPayload(payloads[0], &told) != nil || told.Status == nil {
		return
	}
	on := told.Status
	if on.Phase != status.Phase || on.CurrentStepIndex < status.CurrentStepIndex || len(on.Steps) != len(status.Steps) {
		return // a command has turned the rollout round since
	}
	status.CurrentStepIndex, status.NextStepIndex, status.CurrentStepState = on.CurrentStepIndex, on.NextStepIndex, on.CurrentStepState
	status.Steps, status.FinalisingStep, status.Traffic = on.Steps, on.FinalisingStep, on.Traffic
	status.Replicas, status.CanaryReplicas, status.CanaryReadyReplicas = on.Replicas, on.CanaryReplicas, on.CanaryReadyReplicas
	status.StableRevision, status.CanaryRevision, status.PodTemplateHash = on.StableRevision, on.CanaryRevision, on.PodTemplateHash
	status.Images, status.ObservedWorkloadGeneration = on.Images, on.ObservedWorkloadGeneration
	if !status.Paused {
		status.Reason, status.WaitingFor, status.LastUpdateTime = on.Reason, on.WaitingFor, on.LastUpdateTime
	}
}

// showWait says what is waited for; the status is remembered as its workflow told it.
func showWait(status *rollout.Status, message string) {
	if message == "" {
		return
	}
	if status.WaitingFor == nil {
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
