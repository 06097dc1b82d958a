// Package rollouts implements the HTTP API of rollouts.
package rollouts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/labstack/echo/v4"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

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
	streams *stream.Hub
}

// New creates the handlers.
func New(b *backend.Backend, streams *stream.Hub) *Handlers { return &Handlers{b, streams} }

// GetRollout answers GET /api/v1/rollouts/{namespace}/{name}.
func (h *Handlers) GetRollout(c echo.Context, namespace, name string, params schema.GetRolloutParams) error {
	key, err := newRolloutKey(params.Party, namespace, name)
	if err != nil {
		return err
	}
	return answer.Shared(c, h.Recent, answer.ObjectMaxAge, func(ctx context.Context) (rollout.Status, error) {
		seen, err := h.readRollout(ctx, key)
		return seen.status, err
	})
}

// rolloutSnapshot is a rollout as read at one moment.
type rolloutSnapshot struct {
	status rollout.Status
	// open is true while the rollout's workflow runs, so that the rollout can still change.
	open bool
	// starting is true while the rollout's workflow does not run yet.
	starting bool
	// unanswered is the reason why the rollout's workflow did not answer, so that parts of the snapshot may be
	// outdated; "" if it answered.
	unanswered string
}

func (h *Handlers) readRollout(ctx context.Context, key rolloutKey) (rolloutSnapshot, error) {
	return (&rolloutReader{Handlers: h}).read(ctx, key)
}

// Reader reads the rollout of a name repeatedly, for objects that show it as a part.
type Reader struct {
	reader rolloutReader
	key    rolloutKey
}

// NewReader creates a Reader. Only one goroutine at a time may use it.
func NewReader(b *backend.Backend, party, namespace, name string) *Reader {
	return &Reader{rolloutReader{Handlers: New(b, nil)}, rolloutKey{party, namespace, name}}
}

// Read returns the current status of the rollout.
func (r *Reader) Read(ctx context.Context) (rollout.Status, error) {
	seen, err := r.reader.read(ctx, r.key)
	return seen.status, err
}

// ReadRelease reads the release of a record, even if newer releases of the rollout exist. It returns NotFound if the
// record is no longer kept.
func ReadRelease(ctx context.Context, b *backend.Backend, of plan.RolloutStatus) (rollout.Status, error) {
	h := New(b, nil)
	record, err := b.Home.GetRelease(ctx, of.Record)
	if err != nil {
		return rollout.Status{}, err
	}
	if record.Outcome != nil {
		seen, err := h.readComplete(record)
		return seen.status, err
	}
	seen, err := h.readRollout(ctx, rolloutKey{of.Party, of.Namespace, of.Name})
	switch {
	case err != nil:
		return rollout.Status{}, err
	case seen.unanswered != "":
		return rollout.Status{}, errors.New("the engine's workflow worker does not answer")
	case seen.status.Record != of.Record:
		return rollout.Status{}, errors.New("it has no recorded outcome, and another release has taken its place")
	}
	return seen.status, nil
}

// rolloutReader reads a rollout repeatedly, and queries its workflow only if the history has grown. Only one goroutine
// at a time may use it.
type rolloutReader struct {
	*Handlers
	// runID and length are the run and the history length that the remembered status belongs to.
	runID  string
	length int64
	status rollout.Status
}

// read reads the current state of a rollout: from its workflow while that runs, afterwards from its newest record.
func (r *rolloutReader) read(ctx context.Context, key rolloutKey) (rolloutSnapshot, error) {
	seen, err := backend.Read(ctx, r.Backend, backend.Reading[rolloutSnapshot]{
		WorkflowID: key.workflowID(),
		Record:     func() (*v1alpha1.ReleaseRecord, error) { return r.newestRecord(ctx, key) },
		Open: func(described *workflowservice.DescribeWorkflowExecutionResponse) (rolloutSnapshot, error) {
			return r.readOpen(ctx, key, described)
		},
		Complete: r.readComplete,
		Lost: func(described *workflowservice.DescribeWorkflowExecutionResponse,
			record *v1alpha1.ReleaseRecord) (rolloutSnapshot, error) {
			return r.readLost(ctx, described, record)
		},
	})
	if err == nil {
		seen.status.Conditions = conditions.OfRollout(seen.status)
	}
	return seen, err
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

// readComplete reads a rollout that has ended.
func (h *Handlers) readComplete(record *v1alpha1.ReleaseRecord) (rolloutSnapshot, error) {
	var status rollout.Status
	if err := v1alpha1.DecodeBody(record.Outcome.Body, &status); err != nil {
		return rolloutSnapshot{}, fmt.Errorf("record %s: %w", record.Name, err)
	}
	status.Workflow = h.WorkflowRef(record.Spec.WorkflowID, record.Outcome.RunID)
	status.Record = record.Name
	return rolloutSnapshot{status: status}, nil
}

// readOpen queries the workflow if its history has grown. If no worker answers, it falls back to Temporal's own data
// and the record.
func (r *rolloutReader) readOpen(ctx context.Context, key rolloutKey,
	described *workflowservice.DescribeWorkflowExecutionResponse) (rolloutSnapshot, error) {
	info := described.GetWorkflowExecutionInfo()
	if runID := info.GetExecution().GetRunId(); runID != r.runID || info.GetHistoryLength() != r.length {
		var status rollout.Status
		if err := r.Query(ctx, key.workflowID(), &status); err != nil {
			return r.readUnanswered(ctx, key, info, err)
		}
		r.runID, r.length, r.status = runID, info.GetHistoryLength(), status
	}
	seen := rolloutSnapshot{status: r.status, open: true}
	seen.status.Workflow = r.WorkflowRef(key.workflowID(), info.GetExecution().GetRunId())
	showRolloutProgress(&seen.status, described.GetPendingActivities())
	return seen, nil
}

// readUnanswered reads a rollout whose workflow runs but whose worker does not answer: the requested rollout, in the
// published phase.
func (r *rolloutReader) readUnanswered(ctx context.Context, key rolloutKey, info *workflowpb.WorkflowExecutionInfo,
	cause error) (rolloutSnapshot, error) {
	record, err := r.newestRecord(ctx, key)
	if err != nil {
		return rolloutSnapshot{}, err
	}
	status, err := r.outlineRollout(record)
	if err != nil {
		return rolloutSnapshot{}, err
	}
	status.Phase = publishedPhase(info)
	status.Reason = "the engine's workflow worker does not answer: this is the last published phase; the progress of " +
		"its steps is unknown"
	if status.WaitingFor = publishedWait(info); status.WaitingFor != nil && status.WaitingFor.Message == "" {
		status.WaitingFor.Message =
			"this is the last published wait, without its gate; the engine's workflow worker does not answer"
	}
	status.Workflow = r.WorkflowRef(key.workflowID(), info.GetExecution().GetRunId())
	return rolloutSnapshot{status: status, open: true, unanswered: cause.Error()}, nil
}

// reasonNoWorkflow is the reason of a rollout that has a record but no workflow.
const reasonNoWorkflow = "it was accepted, but has no workflow: it was never started, or Temporal has deleted it; " +
	"start it again"

// readLost reads a rollout without a recorded outcome whose workflow does not run: it is being started, was never
// started, or was terminated.
func (r *rolloutReader) readLost(ctx context.Context, described *workflowservice.DescribeWorkflowExecutionResponse,
	record *v1alpha1.ReleaseRecord) (rolloutSnapshot, error) {
	var status rollout.Status
	if described != nil && r.Query(ctx, record.Spec.WorkflowID, &status) == nil &&
		(status.Record == record.Name || status.Record == "") {
		status.Workflow = r.WorkflowRef(record.Spec.WorkflowID,
			described.GetWorkflowExecutionInfo().GetExecution().GetRunId())
		if status.Phase.Final() || status.FinishedAt != nil {
			return rolloutSnapshot{status: status}, nil // it ended normally; only its record could not be written
		}
		return lostRollout(status, described.GetWorkflowExecutionInfo().GetStatus()), nil
	}
	status, err := r.outlineRollout(record)
	if err != nil {
		return rolloutSnapshot{}, err
	}
	if described != nil && memoRecord(described) == record.Name {
		return lostRollout(status, described.GetWorkflowExecutionInfo().GetStatus()), nil
	}
	if time.Since(record.Spec.CreatedAt.Time) < start.LaunchWindow {
		status.Reason = "is being started"
		return rolloutSnapshot{status: status, starting: true}, nil
	}
	status.Phase = rollout.PhaseFailed
	status.Reason = reasonNoWorkflow
	return rolloutSnapshot{status: status}, nil
}

// lostRollout is a rollout whose workflow ended abnormally: its changes to the workload remain.
func lostRollout(status rollout.Status, how enumspb.WorkflowExecutionStatus) rolloutSnapshot {
	status.Phase, status.WaitingFor = rollout.PhaseFailed, nil
	status.Reason = "its workflow " + backend.AbnormalEnd(how) + ": pods and traffic remain as it left them; start a " +
		"new rollout of the workload, which restores them first, or run slipway repair"
	return rolloutSnapshot{status: status}
}

// outlineRollout creates a rollout's status from its record alone, before its first step.
func (h *Handlers) outlineRollout(record *v1alpha1.ReleaseRecord) (rollout.Status, error) {
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
	var spec strategy.Spec
	if err := v1alpha1.DecodeBody(record.Spec.Snapshot, &spec); err != nil {
		return spec, fmt.Errorf("record %s: %w", record.Name, err)
	}
	return spec, nil
}

// memoRecord returns the name of the record that a workflow was started with.
func memoRecord(described *workflowservice.DescribeWorkflowExecutionResponse) string {
	return backend.Memo[string](described.GetWorkflowExecutionInfo(), workflows.MemoRecord)
}

// publishedWait returns the wait in a rollout's search attributes, nil if there is none; gate and reason come from the
// memo if it belongs to the same wait.
func publishedWait(info *workflowpb.WorkflowExecutionInfo) *rollout.WaitingFor {
	kind := rollout.WaitKind(execution.Published[string](info, workflows.AttributeWaitingFor.GetName()))
	if kind == "" {
		return nil
	}
	waiting := rollout.WaitingFor{Kind: kind, Since: execution.Published[time.Time](info,
		workflows.AttributeWaitingSince.GetName()).UTC()}
	if shown := backend.PublishedDetails(info); shown.WaitingFor != nil && shown.WaitingFor.Kind == kind &&
		shown.WaitingFor.Since.Sub(waiting.Since).Abs() < time.Second {
		waiting = *shown.WaitingFor
		waiting.Message = shown.Reason
	}
	return &waiting
}

// publishedPhase returns the phase that a rollout's workflow last published; Progressing if it has published none.
func publishedPhase(info *workflowpb.WorkflowExecutionInfo) rollout.Phase {
	if phase := execution.Published[string](info, workflows.AttributeState.GetName()); phase != "" {
		return rollout.Phase(phase)
	}
	return rollout.PhaseProgressing
}

// WatchRollout answers GET /api/v1/rollouts/{namespace}/{name}/events.
func (h *Handlers) WatchRollout(c echo.Context, namespace, name string, params schema.WatchRolloutParams) error {
	key, err := newRolloutKey(params.Party, namespace, name)
	if err != nil {
		return err
	}
	return h.streams.Serve(c, key.workflowID(), func() stream.Source {
		reader := &rolloutReader{Handlers: h}
		return stream.FromWorkflow(h.Backend, key.workflowID(), func(ctx context.Context) (stream.Snapshot, error) {
			seen, err := reader.read(ctx, key)
			return stream.Snapshot{Value: seen.status, Workflow: seen.status.Workflow, Ended: !seen.open &&
				!seen.starting,
				Unanswered: seen.unanswered}, err
		})
	})
}
