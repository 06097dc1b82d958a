package backend

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	deploymentpb "go.temporal.io/api/deployment/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/upgrade"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/workflows"
)

// callTimeout is the time limit of one call to Temporal: a client waits for the response.
const callTimeout = 3 * time.Second

// WithCallTimeout returns a context for one call to Temporal, with its time limit and with the record of rate-limit
// errors.
func WithCallTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithValue(ctx, limitKey{}, &limit{}), callTimeout)
}

// closeWait is how long a release in a final state may take to write its record and close.
const closeWait = 5 * time.Second

// WaitForClose waits for the workflow of a release in a final state to close, and reports whether it did. Usually the
// workflow only has to write its record, but services of a failed task may still run.
func (h *Backend) WaitForClose(ctx context.Context, workflowID string) bool {
	wait, cancel := context.WithTimeout(ctx, closeWait)
	defer cancel()
	_ = h.Temporal.GetWorkflow(wait, workflowID, "").Get(wait, nil) // its result does not matter here
	described, err := h.Describe(ctx, workflowID)
	return err == nil && !execution.IsOpen(described)
}

// HolderAlive reports whether the holder of a claim still runs. Only its own engine can find out: a holder of another
// engine counts as alive.
func (h *Backend) HolderAlive(ctx context.Context, holder workload.Holder) (bool, error) {
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

// LiveHolders returns those holders of claims that still run.
func (h *Backend) LiveHolders(ctx context.Context, claims []string) (living []workload.Holder, err error) {
	for _, claim := range claims {
		holder := workload.ParseHolder(claim)
		alive, err := h.HolderAlive(ctx, holder)
		if err != nil {
			return nil, err
		}
		if alive {
			living = append(living, holder)
		}
	}
	return living, nil
}

// Describe returns Temporal's description of the newest run of a workflow, without involving a worker; nil if there is
// no such workflow.
func (h *Backend) Describe(ctx context.Context, workflowID string) (*workflowservice.DescribeWorkflowExecutionResponse,
	error) {
	ctx, cancel := WithCallTimeout(ctx)
	defer cancel()
	described, err := execution.Describe(ctx, h.Temporal, workflowID, "")
	return described, preferRateLimit(ctx, err)
}

// HasRecentPoller reports whether a workflow worker of the engine polled within the given time. Only workers of the
// build that currently gets work count. A poll lasts up to a minute.
func (h *Backend) HasRecentPoller(ctx context.Context, within time.Duration) (bool, error) {
	queue, err := h.Temporal.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
		Namespace: h.Namespace, TaskQueue: &taskqueuepb.TaskQueue{Name: workflows.QueueEngine},
		TaskQueueType: enumspb.TASK_QUEUE_TYPE_WORKFLOW})
	current := queue.GetVersioningInfo().GetCurrentDeploymentVersion().GetBuildId()
	polledRecently := func(p *taskqueuepb.PollerInfo) bool {
		return buildOf(p.GetDeploymentOptions()) == current && time.Since(p.GetLastAccessTime().AsTime()) < within
	}
	return slices.ContainsFunc(queue.GetPollers(), polledRecently), err
}

// buildOf returns the build ID that a worker polls with; upgrade.Unversioned for one without versioning.
func buildOf(o *deploymentpb.WorkerDeploymentOptions) string {
	if o.GetWorkerVersioningMode() != enumspb.WORKER_VERSIONING_MODE_VERSIONED {
		return upgrade.Unversioned
	}
	return o.GetBuildId()
}

// Query queries the state of a run of a workflow, or of its newest run if runID is empty. It returns an error if no
// worker answers in time.
func (h *Backend) Query(ctx context.Context, workflowID, runID string, into any) error {
	ctx, cancel := WithCallTimeout(ctx)
	defer cancel()
	value, err := h.Temporal.QueryWorkflow(ctx, workflowID, runID, workflows.QueryState)
	if err != nil {
		return preferRateLimit(ctx, err)
	}
	return value.Get(into)
}

// WorkflowRef returns a reference to a run. If there is a Temporal UI, it links to the run's page that shows what it
// does, what it waits for and what to send.
func (h *Backend) WorkflowRef(workflowID, runID string) *audit.WorkflowRef {
	ref := &audit.WorkflowRef{ID: workflowID, RunID: runID}
	if h.TemporalUI != "" {
		ref.URL = strings.TrimSuffix(h.TemporalUI, "/") + "/namespaces/" + url.PathEscape(h.Namespace) +
			"/workflows/" + url.PathEscape(workflowID)
		if runID != "" {
			ref.URL += "/" + url.PathEscape(runID) + "/user-metadata"
		}
	}
	return ref
}

// PublishedDetails returns the details in a release's memo, which accompany its search attributes; empty if there are
// none, or if they belong to another state.
func PublishedDetails(info *workflowpb.WorkflowExecutionInfo) workflows.Shown {
	shown := Memo[workflows.Shown](info, workflows.MemoShown)
	if shown.State != execution.Published[string](info, workflows.AttributeState.GetName()) {
		return workflows.Shown{}
	}
	return shown
}

// Memo reads one field of a workflow's memo; the zero value if it is missing or has another type.
func Memo[T any](info *workflowpb.WorkflowExecutionInfo, field string) T {
	var value, zero T
	payload, ok := info.GetMemo().GetFields()[field]
	if !ok || converter.GetDefaultDataConverter().FromPayload(payload, &value) != nil {
		return zero
	}
	return value
}

// Progress returns the last report of an activity: its latest heartbeat message, or the failure of its latest attempt
// ("2 of 3 pods are ready").
func Progress(activity *workflowpb.PendingActivityInfo) string {
	failed := LastFailure(activity)
	beatAt, attemptedAt := activity.GetLastHeartbeatTime().AsTime(), activity.GetLastAttemptCompleteTime().AsTime()
	if beat, _ := Heartbeat[workload.Progress](activity); beat.Message != "" && !beatAt.Before(attemptedAt) {
		return beat.Message
	}
	if failed == "" && activity.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED &&
		activity.GetLastStartedTime() == nil {
		return "waits for a worker of its party"
	}
	return failed
}

// LastFailure returns why the latest attempt of an activity failed; "" if none has. Temporal's own message about a
// worker that has ended, "activity Heartbeat timeout", would not say who does what next.
func LastFailure(activity *workflowpb.PendingActivityInfo) string {
	failed := activity.GetLastFailure()
	if failed.GetTimeoutFailureInfo() == nil {
		return failed.GetMessage()
	}
	if failed.GetTimeoutFailureInfo().GetTimeoutType() == enumspb.TIMEOUT_TYPE_HEARTBEAT {
		return "its worker stopped reporting and has probably ended: the next attempt continues"
	}
	return "an attempt took too long: the next one continues"
}

// Heartbeat decodes an activity's latest heartbeat; is reports whether it has one of this format.
func Heartbeat[T any](activity *workflowpb.PendingActivityInfo) (value T, is bool) {
	var decoded T
	payloads := activity.GetHeartbeatDetails().GetPayloads()
	if len(payloads) == 0 || converter.GetDefaultDataConverter().FromPayload(payloads[0], &decoded) != nil {
		return value, false
	}
	return decoded, true
}

// limitKey is the context key of the rate-limit error that last rejected a Temporal call.
type limitKey struct{}

type limit = atomic.Pointer[status.Status]

// RecordRateLimits is a gRPC interceptor for connections to Temporal. Temporal's client retries calls rejected by a
// rate limit until their deadline, and the final error no longer mentions the limit; the interceptor records the
// rejection in the context.
func RecordRateLimits(ctx context.Context, method string, request, reply any, to *grpc.ClientConn,
	call grpc.UnaryInvoker, options ...grpc.CallOption) error {
	err := call(ctx, method, request, reply, to, options...)
	if noted, ok := ctx.Value(limitKey{}).(*limit); ok {
		if rejection, ok := status.FromError(err); ok && rejection.Code() == codes.ResourceExhausted {
			noted.Store(rejection)
		}
	}
	return err
}

// preferRateLimit replaces a deadline error by the rate-limit error that caused it; other errors are returned
// unchanged.
func preferRateLimit(ctx context.Context, err error) error {
	noted, ok := ctx.Value(limitKey{}).(*limit)
	if err == nil || !ok || noted.Load() == nil {
		return err
	}
	if !problem.Has[*serviceerror.DeadlineExceeded](err) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return serviceerror.FromStatus(noted.Load())
}
