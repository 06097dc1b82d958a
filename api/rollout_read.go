package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/workflows"
)

// GetRollout answers GET /api/v1/rollouts/{namespace}/{name}.
func (h *handlers) GetRollout(c echo.Context, namespace Namespace, name RolloutName, params GetRolloutParams) error {
	key, err := newRolloutKey(params.Party, namespace, name)
	if err != nil {
		return err
	}
	seen, err := h.readRollout(c.Request().Context(), key)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, seen.status)
}

// rolloutSight is a rollout as it was found.
type rolloutSight struct {
	status rollout.Status
	// open says that its workflow runs, so that it can still change.
	open bool
	// starting says that its workflow does not run yet.
	starting bool
	// unanswered says why its workflow was not heard, so that parts of this may be old; "" when it was.
	unanswered string
}

func (h *handlers) readRollout(ctx context.Context, key rolloutKey) (rolloutSight, error) {
	return (&rolloutReader{handlers: h}).read(ctx, key)
}

// rolloutReader reads a rollout, and remembers what has not changed since: whoever looks again and again asks its worker only for what is
// new. Only one goroutine at a time may use it.
type rolloutReader struct {
	*handlers
	// runID and length say which run, and how much of its history, the remembered status is of.
	runID  string
	length int64
	status rollout.Status
}

// read reads a rollout as it is now: from its workflow while that runs, and from its newest record when it is over.
func (r *rolloutReader) read(ctx context.Context, key rolloutKey) (rolloutSight, error) {
	return read(ctx, r.handlers, releaseReading[rolloutSight]{
		workflowID: key.workflowID(),
		record:     func() (*v1alpha1.ReleaseRecord, error) { return r.newestRecord(ctx, key) },
		open: func(described *workflowservice.DescribeWorkflowExecutionResponse) (rolloutSight, error) {
			return r.readOpen(ctx, key, described)
		},
		complete: r.readComplete,
		lost: func(described *workflowservice.DescribeWorkflowExecutionResponse, record *v1alpha1.ReleaseRecord) (rolloutSight, error) {
			return r.readLost(ctx, described, record)
		},
	})
}

// newestRecord is the record of the newest release of that name, whole.
func (h *handlers) newestRecord(ctx context.Context, key rolloutKey) (*v1alpha1.ReleaseRecord, error) {
	records, err := h.Home.ListRecords(ctx, key.labels())
	if err != nil {
		return nil, err
	}
	for _, record := range records {
		whole, err := h.Home.GetRelease(ctx, record.Name)
		if isFailure(err, failure.NotFound) {
			continue // it was withdrawn or pruned meanwhile
		}
		return whole, err
	}
	return nil, key.missing()
}

// readComplete is a rollout that is over.
func (h *handlers) readComplete(record *v1alpha1.ReleaseRecord) (rolloutSight, error) {
	var status rollout.Status
	if err := v1alpha1.DecodeBody(record.Outcome.Body, &status); err != nil {
		return rolloutSight{}, fmt.Errorf("record %s: %w", record.Name, err)
	}
	status.Workflow = h.workflowRef(record.Spec.WorkflowID, record.Outcome.RunID)
	status.Record = record.Name
	return rolloutSight{status: status}, nil
}

// readOpen asks the rollout's own workflow, when its history has grown since it was last asked. When no worker answers, what Temporal itself
// and the record know has to do.
func (r *rolloutReader) readOpen(ctx context.Context, key rolloutKey, described *workflowservice.DescribeWorkflowExecutionResponse) (rolloutSight, error) {
	info := described.GetWorkflowExecutionInfo()
	if runID := info.GetExecution().GetRunId(); runID != r.runID || info.GetHistoryLength() != r.length {
		var status rollout.Status
		if err := r.query(ctx, key.workflowID(), &status); err != nil {
			return r.readUnanswered(ctx, key, info, err)
		}
		r.runID, r.length, r.status = runID, info.GetHistoryLength(), status
	}
	seen := rolloutSight{status: r.status, open: true}
	seen.status.Workflow = r.workflowRef(key.workflowID(), info.GetExecution().GetRunId())
	showRolloutProgress(&seen.status, described.GetPendingActivities())
	return seen, nil
}

// readUnanswered is a rollout whose workflow runs but whose worker does not answer: what it was asked, and the phase that was last published.
func (r *rolloutReader) readUnanswered(ctx context.Context, key rolloutKey, info *workflowpb.WorkflowExecutionInfo, cause error) (rolloutSight, error) {
	record, err := r.newestRecord(ctx, key)
	if err != nil {
		return rolloutSight{}, err
	}
	status, err := r.outlineRollout(record)
	if err != nil {
		return rolloutSight{}, err
	}
	status.Phase = publishedPhase(info)
	status.Reason = "the engine's workflow worker does not answer: this is the phase that was last published; how far its steps are is not known"
	if waiting := publishedText(info, workflows.AttributeWaitingFor.GetName()); waiting != "" {
		status.WaitingFor = &rollout.WaitingFor{Kind: rollout.WaitKind(waiting), Since: publishedTime(info, workflows.AttributeWaitingSince.GetName()),
			Message: "what it waits for was last published; the engine's workflow worker does not answer"}
	}
	status.Workflow = r.workflowRef(key.workflowID(), info.GetExecution().GetRunId())
	return rolloutSight{status: status, open: true, unanswered: cause.Error()}, nil
}

// readLost is a rollout that was never recorded as over and whose workflow does not run: it is being started, was never started, or was
// terminated.
func (r *rolloutReader) readLost(ctx context.Context, described *workflowservice.DescribeWorkflowExecutionResponse, record *v1alpha1.ReleaseRecord) (rolloutSight, error) {
	var status rollout.Status
	if described != nil && r.query(ctx, record.Spec.WorkflowID, &status) == nil && (status.Record == record.Name || status.Record == "") {
		status.Workflow = r.workflowRef(record.Spec.WorkflowID, described.GetWorkflowExecutionInfo().GetExecution().GetRunId())
		if status.Phase.Final() || status.FinishedAt != nil {
			return rolloutSight{status: status}, nil // it ended well, only its record could not be written
		}
		return lostRollout(status, described.GetWorkflowExecutionInfo().GetStatus()), nil
	}
	status, err := r.outlineRollout(record)
	if err != nil {
		return rolloutSight{}, err
	}
	if described != nil && memoRecord(described) == record.Name {
		return lostRollout(status, described.GetWorkflowExecutionInfo().GetStatus()), nil
	}
	if time.Since(record.Spec.CreatedAt.Time) < startWindow {
		status.Reason = "is being started"
		return rolloutSight{status: status, starting: true}, nil
	}
	status.Phase = rollout.PhaseFailed
	status.Reason = "it was accepted, but no workflow of it is known: it was never started, or Temporal has forgotten it; start it anew"
	return rolloutSight{status: status}, nil
}

// lostRollout is a rollout whose workflow did not end by itself: what it left on the workload is still there.
func lostRollout(status rollout.Status, how enumspb.WorkflowExecutionStatus) rolloutSight {
	status.Phase, status.WaitingFor = rollout.PhaseFailed, nil
	status.Reason = "its workflow " + howLost(how) + ": pods and traffic are where it left them; start a new rollout of the workload, which brings them home " +
		"first, or run slipway repair"
	return rolloutSight{status: status}
}

// outlineRollout is what a record alone says of a rollout: everything is still to be done.
func (h *handlers) outlineRollout(record *v1alpha1.ReleaseRecord) (rollout.Status, error) {
	spec, err := specOf(record)
	if err != nil {
		return rollout.Status{}, err
	}
	created := record.Spec.CreatedAt.UTC()
	return rollout.NewMachine(rollout.Setup{Spec: spec, Release: record.Name, Workflow: *h.workflowRef(record.Spec.WorkflowID, ""), CreatedAt: created,
		Actor: record.Spec.Actor, Reason: record.Spec.Reason, Via: record.Labels[v1alpha1.LabelVia], BringHome: isBringHome(record)}, created).Status(), nil
}

// specOf is what a rollout was asked.
func specOf(record *v1alpha1.ReleaseRecord) (rollout.Spec, error) {
	var spec rollout.Spec
	if err := v1alpha1.DecodeBody(record.Spec.Snapshot, &spec); err != nil {
		return spec, fmt.Errorf("record %s: %w", record.Name, err)
	}
	return spec, nil
}

// memoRecord is the record with which a workflow was started.
func memoRecord(described *workflowservice.DescribeWorkflowExecutionResponse) string {
	var record string
	payload, ok := described.GetWorkflowExecutionInfo().GetMemo().GetFields()[memoKeyRecord]
	if !ok || converter.GetDefaultDataConverter().FromPayload(payload, &record) != nil {
		return ""
	}
	return record
}

// publishedPhase is the phase that a rollout's workflow last published; Progressing until it has published one.
func publishedPhase(info *workflowpb.WorkflowExecutionInfo) rollout.Phase {
	if phase := publishedText(info, workflows.AttributeState.GetName()); phase != "" {
		return rollout.Phase(phase)
	}
	return rollout.PhaseProgressing
}

func publishedText(info *workflowpb.WorkflowExecutionInfo, attribute string) string {
	var value string
	payload, ok := info.GetSearchAttributes().GetIndexedFields()[attribute]
	if !ok || converter.GetDefaultDataConverter().FromPayload(payload, &value) != nil {
		return ""
	}
	return value
}

func publishedTime(info *workflowpb.WorkflowExecutionInfo, attribute string) time.Time {
	var value time.Time
	payload, ok := info.GetSearchAttributes().GetIndexedFields()[attribute]
	if !ok || converter.GetDefaultDataConverter().FromPayload(payload, &value) != nil {
		return time.Time{}
	}
	return value.UTC()
}
