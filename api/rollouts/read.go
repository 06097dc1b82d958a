// Package rollouts implements the HTTP API of rollouts.
package rollouts

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/labstack/echo/v4"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/api/stream"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/conditions"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/store"
	"slipway.io/slipway/workflows"
)

// Handlers implements the operations of openapi.yaml on rollouts.
type Handlers struct {
	*backend.Backend
	Streams *stream.Hub
}

// GetRollout answers GET /api/v1/rollouts/{namespace}/{name}.
func (h *Handlers) GetRollout(c echo.Context, namespace, name string, params schema.GetRolloutParams) error {
	key, err := newRolloutKey(params.Party, namespace, name)
	if err != nil {
		return err
	}
	return answer.Shared(c, h.Recent, answer.ObjectMaxAge, func(ctx context.Context) (rollout.Status, error) {
		seen, err := h.readRollout(ctx, key)
		return seen.Value, err
	})
}

// rolloutSnapshot is a rollout as read at one moment.
type rolloutSnapshot = backend.Snapshot[rollout.Status]

func (h *Handlers) readRollout(ctx context.Context, key rolloutKey) (rolloutSnapshot, error) {
	return (&Reader{Handlers: h, key: key}).Read(ctx)
}

// ReadRelease reads the release of a record, even if newer releases of the rollout exist. It returns NotFound if the
// record is no longer kept.
func ReadRelease(ctx context.Context, b *backend.Backend, of plan.RolloutStatus) (rollout.Status, error) {
	reader := NewReader(b, of.Party, of.Namespace, of.Name)
	record, err := b.Home.GetRelease(ctx, of.Record)
	if err != nil {
		return rollout.Status{}, err
	}
	if record.Outcome != nil {
		return reader.Complete(record)
	}
	seen, err := reader.Read(ctx)
	switch {
	case err != nil:
		return rollout.Status{}, err
	case seen.Unanswered != "":
		return rollout.Status{}, errors.New("the engine's workflow worker does not answer")
	case seen.Value.Record != of.Record:
		return rollout.Status{}, errors.New("it has no recorded outcome, and another release has taken its place")
	}
	return seen.Value, nil
}

// Reader reads the rollout of a name repeatedly, and queries its workflow only if the history has grown. Only one
// goroutine at a time may use it.
type Reader struct {
	*Handlers
	key    rolloutKey
	memory backend.Memory[workflows.RolloutState]
}

// NewReader creates a Reader.
func NewReader(b *backend.Backend, party, namespace, name string) *Reader {
	return &Reader{Handlers: &Handlers{Backend: b}, key: rolloutKey{party, namespace, name}}
}

// Read reads the current state of a rollout: from its workflow while that runs, afterwards from its newest record.
func (r *Reader) Read(ctx context.Context) (rolloutSnapshot, error) {
	seen, err := backend.Read(ctx, r.Backend, r.key.workflowID(), r)
	if err == nil {
		seen.Value.Conditions = conditions.OfRollout(seen.Value)
	}
	return seen, err
}

// Record implements backend.Reader.
func (r *Reader) Record(ctx context.Context) (*v1alpha1.ReleaseRecord, error) {
	return r.newestRecord(ctx, r.key)
}

// newestRecord returns the complete record of the newest release of that name.
func (h *Handlers) newestRecord(ctx context.Context, key rolloutKey) (*v1alpha1.ReleaseRecord, error) {
	records, err := h.Home.ListRecords(ctx, key.labels())
	if err != nil {
		return nil, err
	}
	for _, record := range records {
		full, err := h.Home.GetRelease(ctx, record.Name)
		if failure.Is(err, failure.NotFound) {
			continue // it was withdrawn or pruned in the meantime
		}
		return full, err
	}
	return nil, key.missing()
}

// Complete implements backend.Reader.
func (h *Handlers) Complete(record *v1alpha1.ReleaseRecord) (rollout.Status, error) {
	status, err := backend.Decode[rollout.Status](record, record.Outcome.Body)
	status.Workflow = h.WorkflowRef(record.Spec.WorkflowID, record.Outcome.RunID)
	status.Record = record.Name
	return status, err
}

// Running implements backend.Reader.
func (r *Reader) Running(ctx context.Context,
	described *workflowservice.DescribeWorkflowExecutionResponse) (rollout.Status, error) {
	info := described.GetWorkflowExecutionInfo()
	state, err := r.memory.Query(ctx, r.Backend, r.key.workflowID(), info)
	status := state.Status
	status.Workflow = r.WorkflowRef(r.key.workflowID(), info.GetExecution().GetRunId())
	// of an older description the activities may have ended: their progress may be that of another step
	if state.AsOf <= info.GetHistoryLength() {
		showRolloutProgress(&status, described.GetPendingActivities())
	}
	return status, err
}

// Unanswered implements backend.Reader: it shows the phase and wait that the workflow has published, with the step that
// it has published with them, or, if it has published no wait, what its leg reports.
func (r *Reader) Unanswered(status *rollout.Status, described *workflowservice.DescribeWorkflowExecutionResponse) {
	info := described.GetWorkflowExecutionInfo()
	const silent = "the engine's workflow worker does not answer"
	wait, position := publishedWait(info)
	status.Phase, status.WaitingFor = publishedPhase(info), wait
	status.PlaceAt(position)
	status.Workflow = r.WorkflowRef(r.key.workflowID(), info.GetExecution().GetRunId())
	switch on := legStatus(described.GetPendingActivities()); {
	case wait == nil && on != nil && on.Phase == status.Phase && len(on.Steps) == len(status.Steps):
		takeLeg(status, on)
		status.Paused = on.Paused
		showRolloutProgress(status, described.GetPendingActivities())
		status.Reason = silent + "; its party's worker reports: " + status.Reason
	case status.CurrentStepIndex == 0:
		status.Reason = silent + ": this is the last published phase; the progress of its steps is unknown"
	default:
		status.Reason = silent + ": this is the last published wait"
	}
	if wait != nil && wait.Message == "" {
		wait.Message = "this is the last published wait, without its gate; " + silent
	}
}

// reasonNoWorkflow is the reason of a rollout that has a record but no workflow.
const reasonNoWorkflow = "it was accepted, but has no workflow: it was never started, or Temporal has deleted it; " +
	"start it again"

// Lost implements backend.Reader.
func (r *Reader) Lost(ctx context.Context, described *workflowservice.DescribeWorkflowExecutionResponse,
	record *v1alpha1.ReleaseRecord) (rolloutSnapshot, error) {
	var status rollout.Status
	info := described.GetWorkflowExecutionInfo()
	if described != nil && r.Query(ctx, record.Spec.WorkflowID, "", &status) == nil &&
		(status.Record == record.Name || status.Record == "") {
		status.Workflow = r.WorkflowRef(record.Spec.WorkflowID, info.GetExecution().GetRunId())
		if status.Phase.Final() || status.FinishedAt != nil {
			return rolloutSnapshot{Value: status}, nil // it ended normally; only its record could not be written
		}
		return lostRollout(status, info.GetStatus()), nil
	}
	status, err := r.Outline(record)
	if err != nil {
		return rolloutSnapshot{}, err
	}
	if described != nil && memoRecord(described) == record.Name {
		return lostRollout(status, info.GetStatus()), nil
	}
	if time.Since(record.Spec.CreatedAt.Time) < start.LaunchWindow {
		status.Reason = "is being started"
		return rolloutSnapshot{Value: status, Starting: true}, nil
	}
	status.Phase, status.Reason = rollout.PhaseFailed, reasonNoWorkflow
	return rolloutSnapshot{Value: status}, nil
}

// lostRollout is a rollout whose workflow ended abnormally: its changes to the workload remain.
func lostRollout(status rollout.Status, how enumspb.WorkflowExecutionStatus) rolloutSnapshot {
	status.Phase, status.WaitingFor = rollout.PhaseFailed, nil
	status.Reason = "its workflow " + backend.AbnormalEnd(how) + ": pods and traffic remain as it left them; start a " +
		"new rollout of the workload, which restores them first, or run slipway repair"
	return rolloutSnapshot{Value: status}
}

// Outline implements backend.Reader.
func (h *Handlers) Outline(record *v1alpha1.ReleaseRecord) (rollout.Status, error) {
	spec, err := specOf(record)
	if err != nil {
		return rollout.Status{}, err
	}
	return h.initialStatus(record.Spec.WorkflowID, store.RolloutAsked(record, spec)), nil
}

// initialStatus returns the status of a requested rollout before its first step.
func (h *Handlers) initialStatus(workflowID string, asked machine.Request) rollout.Status {
	return machine.NewMachine(machine.Setup{Request: asked, Workflow: *h.WorkflowRef(workflowID, "")},
		asked.CreatedAt).Status()
}

// specOf decodes the spec that a record's rollout was started with.
func specOf(record *v1alpha1.ReleaseRecord) (strategy.Spec, error) {
	return backend.Decode[strategy.Spec](record, record.Spec.Snapshot)
}

// memoRecord returns the name of the record that a workflow was started with.
func memoRecord(described *workflowservice.DescribeWorkflowExecutionResponse) string {
	return backend.Memo[string](described.GetWorkflowExecutionInfo(), workflows.MemoRecord)
}

// publishedWait returns the wait in a rollout's search attributes, nil if there is none. Gate, reason and the step that
// waits come from the memo if it belongs to the same wait.
func publishedWait(info *workflowpb.WorkflowExecutionInfo) (wait *rollout.WaitingFor, at rollout.Position) {
	kind := rollout.WaitKind(execution.Published[string](info, workflows.AttributeWaitingFor.GetName()))
	if kind == "" {
		return nil, at
	}
	waiting := rollout.WaitingFor{Kind: kind, Since: execution.Published[time.Time](info,
		workflows.AttributeWaitingSince.GetName()).UTC()}
	if shown := backend.PublishedDetails(info); shown.WaitingFor != nil && shown.WaitingFor.Kind == kind &&
		shown.WaitingFor.Since.Sub(waiting.Since).Abs() < time.Second {
		waiting, at = *shown.WaitingFor, shown.Position
		waiting.Message = shown.Reason
	}
	return &waiting, at
}

// publishedPhase returns the phase that a rollout's workflow last published; Progressing if it has published none.
func publishedPhase(info *workflowpb.WorkflowExecutionInfo) rollout.Phase {
	phase := execution.Published[rollout.Phase](info, workflows.AttributeState.GetName())
	return cmp.Or(phase, rollout.PhaseProgressing)
}

// WatchRollout answers GET /api/v1/rollouts/{namespace}/{name}/events.
func (h *Handlers) WatchRollout(c echo.Context, namespace, name string, params schema.WatchRolloutParams) error {
	key, err := newRolloutKey(params.Party, namespace, name)
	if err != nil {
		return err
	}
	return h.Streams.Serve(c, key.workflowID(), func() stream.Source {
		reader := &Reader{Handlers: h, key: key}
		return stream.FromWorkflow(h.Backend, key.workflowID(), func(ctx context.Context) (stream.Snapshot, error) {
			seen, err := reader.Read(ctx)
			return stream.Of(seen, seen.Value.Workflow), err
		})
	})
}

// podCount is an activity's report on its pods, in its heartbeat or in the details of a retried failure.
type podCount struct {
	Message      string `json:"message"`
	Updated      *int32 `json:"updated"`
	UpdatedReady *int32 `json:"updatedReady"`
}

// showRolloutProgress adds the last report of the running activity to the status: the workflow learns nothing about
// pods between two events of its history.
func showRolloutProgress(status *rollout.Status, pending []*workflowpb.PendingActivityInfo) {
	if w := status.WaitingFor; w == nil || w.Kind != rollout.WaitPods && w.Kind != rollout.WaitTraffic &&
		w.Kind != rollout.WaitParty {
		return
	}
	for _, activity := range pending {
		switch activity.GetActivityType().GetName() {
		case machine.ActivityLeg:
			if showLeg(status, activity) {
				showPods(status, activity)
			}
		// only its latest attempt reports that it waits for another release, and for which
		case rollout.ActivityHoldTraffic:
			if message := backend.LastFailure(activity); message != "" {
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

// legStatus returns the rollout as its running leg last reported it, nil if none reports.
func legStatus(pending []*workflowpb.PendingActivityInfo) *rollout.Status {
	for _, activity := range pending {
		if activity.GetActivityType().GetName() == machine.ActivityLeg {
			progress, _ := backend.Heartbeat[machine.LegProgress](activity)
			return progress.Status
		}
	}
	return nil
}

// showLeg adds the progress of a leg to the status: the workflow learns of the leg's steps only when the leg has ended.
// What users have commanded in the meantime comes from the workflow alone: if that has changed the rollout's direction
// or steps, nothing is added, because the view would be of two moments. It returns whether the pods that the activity
// reports are those of the action that is shown.
func showLeg(status *rollout.Status, activity *workflowpb.PendingActivityInfo) bool {
	progress, _ := backend.Heartbeat[machine.LegProgress](activity)
	on := progress.Status
	if on == nil {
		return true
	}
	if on.Phase != status.Phase || on.Paused != status.Paused || on.CurrentStepIndex < status.CurrentStepIndex ||
		len(on.Steps) != len(status.Steps) {
		return false
	}
	takeLeg(status, on)
	return progress.PartNumber == len(progress.Parts)+1 // else they are those of an action before
}

// takeLeg shows the rollout as its leg reports it.
func takeLeg(status, on *rollout.Status) {
	status.CurrentStepIndex, status.NextStepIndex, status.CurrentStepState = on.CurrentStepIndex, on.NextStepIndex,
		on.CurrentStepState
	status.Steps, status.FinalisingStep, status.Traffic = on.Steps, on.FinalisingStep, on.Traffic
	status.Replicas, status.CanaryReplicas, status.CanaryReadyReplicas = on.Replicas, on.CanaryReplicas,
		on.CanaryReadyReplicas
	status.StableRevision, status.CanaryRevision, status.PodTemplateHash = on.StableRevision, on.CanaryRevision,
		on.PodTemplateHash
	status.Images, status.ObservedWorkloadGeneration = on.Images, on.ObservedWorkloadGeneration
	status.Reason, status.WaitingFor, status.LastUpdateTime = on.Reason, on.WaitingFor, on.LastUpdateTime
}

// showWait sets the message of the awaited condition. It copies WaitingFor, because the cached status must not change.
func showWait(status *rollout.Status, message string) {
	if message == "" || status.WaitingFor == nil {
		return
	}
	waiting := *status.WaitingFor
	waiting.Message = message
	status.WaitingFor = &waiting
}

// newestPodCount returns the newest pod count of an activity: from its latest heartbeat or its latest failure.
func newestPodCount(activity *workflowpb.PendingActivityInfo) podCount {
	beat, _ := backend.Heartbeat[podCount](activity) // one of another format contains no pod count
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
