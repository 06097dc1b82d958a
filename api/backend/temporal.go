package backend

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	deploymentpb "go.temporal.io/api/deployment/v1"
	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/upgrade"
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/workflows"
)

// brief bounds one question to Temporal: somebody waits for the answer.
const brief = 3 * time.Second

// Briefly bounds one question to Temporal.
func Briefly(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithValue(ctx, limitKey{}, &limit{}), brief)
}

// closeWait is how long a release that is over in all but name may take to write its record and close.
const closeWait = 5 * time.Second

// ClosesSoon waits for a workflow whose release is in a final state to close: it only writes its record, unless services of a task beside a
// failed one still run.
func (h *Backend) ClosesSoon(ctx context.Context, workflowID string) bool {
	wait, cancel := context.WithTimeout(ctx, closeWait)
	defer cancel()
	_ = h.Temporal.GetWorkflow(wait, workflowID, "").Get(wait, nil) // how it ended is not asked here
	described, err := h.Describe(ctx, workflowID)
	return err == nil && !execution.IsOpen(described)
}

// HolderAlive asks Temporal whether the holder of a claim still runs. Only its own engine knows that: another engine's counts as alive.
func (h *Backend) HolderAlive(ctx context.Context, holder workloadops.Holder) (bool, error) {
	engine, err := h.Home.Engine(ctx)
	if err != nil || holder.Engine.Differs(engine) {
		return true, err
	}
	described, err := h.Describe(ctx, holder.WorkflowID)
	if err != nil || !execution.IsOpen(described) {
		return false, err
	}
	return execution.HasRun(described, holder.RunID), nil
}

// Describe is what Temporal knows of the newest run of a workflow without asking its worker; nil when it knows no such workflow.
func (h *Backend) Describe(ctx context.Context, workflowID string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	ctx, cancel := Briefly(ctx)
	defer cancel()
	described, err := execution.Describe(ctx, h.Temporal, workflowID, "")
	return described, ofLimit(ctx, err)
}

// WorkerAsked says whether a workflow worker of the engine that gets work has asked Temporal for it at most so long ago: one of another build than the one that
// Temporal gives the work to only stands by. A poll lasts up to a minute.
func (h *Backend) WorkerAsked(ctx context.Context, within time.Duration) (bool, error) {
	queue, err := h.Temporal.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
		Namespace: h.Namespace, TaskQueue: &taskqueuepb.TaskQueue{Name: workflows.QueueEngine}, TaskQueueType: enumspb.TASK_QUEUE_TYPE_WORKFLOW})
	gets := queue.GetVersioningInfo().GetCurrentDeploymentVersion().GetBuildId()
	asked := func(p *taskqueuepb.PollerInfo) bool {
		return pollsAs(p.GetDeploymentOptions()) == gets && time.Since(p.GetLastAccessTime().AsTime()) < within
	}
	return slices.ContainsFunc(queue.GetPollers(), asked), err
}

// pollsAs is the ID of the build that a worker polls as; empty for one that tells Temporal none.
func pollsAs(o *deploymentpb.WorkerDeploymentOptions) string {
	if o.GetWorkerVersioningMode() != enumspb.WORKER_VERSIONING_MODE_VERSIONED {
		return upgrade.Unversioned
	}
	return o.GetBuildId()
}

// Query asks the newest run of a workflow for its state. A workflow whose worker does not answer in time is an error.
func (h *Backend) Query(ctx context.Context, workflowID string, into any) error {
	ctx, cancel := Briefly(ctx)
	defer cancel()
	value, err := h.Temporal.QueryWorkflow(ctx, workflowID, "", workflows.QueryState)
	if err != nil {
		return ofLimit(ctx, err)
	}
	return value.Get(into)
}

// workflowURL is the page of a run in the Temporal UI on which it says what it does, what it waits for and what to send; "" when there is
// none.
func (h *Backend) workflowURL(workflowID, runID string) string {
	if h.TemporalUI == "" {
		return ""
	}
	address := strings.TrimSuffix(h.TemporalUI, "/") + "/namespaces/" + url.PathEscape(h.Namespace) +
		"/workflows/" + url.PathEscape(workflowID)
	if runID == "" {
		return address
	}
	return address + "/" + url.PathEscape(runID) + "/user-metadata"
}

// WorkflowRef names a run of a workflow, with its page in the Temporal UI where there is one.
func (h *Backend) WorkflowRef(workflowID, runID string) *plan.WorkflowRef {
	return &plan.WorkflowRef{ID: workflowID, RunID: runID, URL: h.workflowURL(workflowID, runID)}
}

// PublishedShown is what a release's memo says beside its search attributes; empty when it says nothing, or speaks of another state.
func PublishedShown(info *workflowpb.WorkflowExecutionInfo) workflows.Shown {
	shown := Memo[workflows.Shown](info, workflows.MemoShown)
	if shown.State != execution.Published[string](info, workflows.AttributeState.GetName()) {
		return workflows.Shown{}
	}
	return shown
}

// Memo reads one field of a workflow's memo; the zero value when it has none, or one of another type.
func Memo[T any](info *workflowpb.WorkflowExecutionInfo, field string) T {
	var value, zero T
	payload, ok := info.GetMemo().GetFields()[field]
	if !ok || converter.GetDefaultDataConverter().FromPayload(payload, &value) != nil {
		return zero
	}
	return value
}

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
