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

// podCount is an activity's report on its pods, in its heartbeat or in the details of a retried failure.
type podCount struct {
	Message      string `json:"message"`
	Updated      *int32 `json:"updated"`
	UpdatedReady *int32 `json:"updatedReady"`
}

// showRolloutProgress adds the last report of the running activity to the status: the workflow learns nothing about
// pods between two events of its history. The pending activities were read before the workflow was queried: an activity
// that the workflow no longer waits for has ended.
func showRolloutProgress(status *rollout.Status, pending []*workflowpb.PendingActivityInfo) {
	if w := status.WaitingFor; w == nil || w.Kind != rollout.WaitPods && w.Kind != rollout.WaitTraffic &&
		w.Kind != rollout.WaitParty {
		return
	}
	for _, activity := range pending {
		switch activity.GetActivityType().GetName() {
		case machine.ActivityLeg:
			showLeg(status, activity)
			showPods(status, activity)
		// only its latest attempt reports that it waits for another release, and for which
		case rollout.ActivityHoldTraffic:
			if message := activity.GetLastFailure().GetMessage(); message != "" {
				status.Reason = message
				showWait(status, message)
			}
		}
	}
}

// showPods adds the newest pod counts and the message of the awaited condition to the status.
func showPods(status *rollout.Status, activity *workflowpb.PendingActivityInfo) {
	count := newestPodCount(activity)
	if count.UpdatedReady != nil {
		status.CanaryReadyReplicas = *count.UpdatedReady
	}
	if count.Updated != nil {
		status.CanaryReplicas = *count.Updated
	}
	showWait(status, backend.Progress(activity))
}

// showLeg adds the progress of a leg to the status: the workflow learns of the leg's steps only when the leg has ended.
// What users have commanded in the meantime comes from the workflow alone.
func showLeg(status *rollout.Status, activity *workflowpb.PendingActivityInfo) {
	var progress machine.LegProgress
	payloads := activity.GetHeartbeatDetails().GetPayloads()
	if len(payloads) == 0 || converter.GetDefaultDataConverter().FromPayload(payloads[0], &progress) != nil ||
		progress.Status == nil {
		return
	}
	on := progress.Status
	if on.Phase != status.Phase || on.CurrentStepIndex < status.CurrentStepIndex || len(on.Steps) != len(status.Steps) {
		return // a command has changed the rollout's direction or steps since then
	}
	status.CurrentStepIndex, status.NextStepIndex, status.CurrentStepState = on.CurrentStepIndex, on.NextStepIndex,
		on.CurrentStepState
	status.Steps, status.FinalisingStep, status.Traffic = on.Steps, on.FinalisingStep, on.Traffic
	status.Replicas, status.CanaryReplicas, status.CanaryReadyReplicas = on.Replicas, on.CanaryReplicas,
		on.CanaryReadyReplicas
	status.StableRevision, status.CanaryRevision, status.PodTemplateHash = on.StableRevision, on.CanaryRevision,
		on.PodTemplateHash
	status.Images, status.ObservedWorkloadGeneration = on.Images, on.ObservedWorkloadGeneration
	if !status.Paused {
		status.Reason, status.WaitingFor, status.LastUpdateTime = on.Reason, on.WaitingFor, on.LastUpdateTime
	}
}

// showWait sets the message of the awaited condition. It copies WaitingFor, because the cached status must not change.
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

// reported returns the newest pod count of an activity: from its latest heartbeat or its latest failure.
func newestPodCount(activity *workflowpb.PendingActivityInfo) podCount {
	var beat podCount
	if payloads := activity.GetHeartbeatDetails().GetPayloads(); len(payloads) > 0 {
		// a heartbeat of another format contains no pod count
		_ = converter.GetDefaultDataConverter().FromPayload(payloads[0], &beat)
	}
	beatAt := activity.GetLastHeartbeatTime().AsTime()
	if beat.UpdatedReady != nil && !beatAt.Before(activity.GetLastAttemptCompleteTime().AsTime()) {
		return beat
	}
	details := activity.GetLastFailure().GetApplicationFailureInfo().GetDetails().GetPayloads()
	var reportedFailure failure.Details
	var failed podCount
	if len(details) > 0 && converter.GetDefaultDataConverter().FromPayload(details[0], &reportedFailure) == nil &&
		len(reportedFailure.Data) > 0 &&
		json.Unmarshal(reportedFailure.Data, &failed) == nil && failed.UpdatedReady != nil {
		return failed
	}
	return beat
}
