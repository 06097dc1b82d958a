// Package rollouts answers the HTTP API of rollouts.
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

// Handlers answer the operations of openapi.yaml on rollouts.
type Handlers struct {
	*backend.Backend
	streams *stream.Hub
}

// New makes the handlers.
func New(b *backend.Backend, streams *stream.Hub) *Handlers { return &Handlers{b, streams} }

// GetRollout answers GET /api/v1/rollouts/{namespace}/{name}.
func (h *Handlers) GetRollout(c echo.Context, namespace, name string, params schema.GetRolloutParams) error {
	key, err := newRolloutKey(params.Party, namespace, name)
	if err != nil {
		return err
	}
	return answer.Shared(c, h.Recent, answer.FreshObject, func(ctx context.Context) (rollout.Status, error) {
		seen, err := h.readRollout(ctx, key)
		return seen.status, err
	})
}

// rolloutSnapshot is a rollout as it was found.
type rolloutSnapshot struct {
	status rollout.Status
	// open says that its workflow runs, so that it can still change.
	open bool
	// starting says that its workflow does not run yet.
	starting bool
	// unanswered says why its workflow was not heard, so that parts of this may be old; "" when it was.
	unanswered string
}

func (h *Handlers) readRollout(ctx context.Context, key rolloutKey) (rolloutSnapshot, error) {
	return (&rolloutReader{Handlers: h}).read(ctx, key)
}

// Reader reads the rollout of a name again and again, for whoever shows it as a part of something else.
type Reader struct {
	reader rolloutReader
	key    rolloutKey
}

// NewReader makes one. One goroutine at a time may use it.
func NewReader(b *backend.Backend, party, namespace, name string) *Reader {
	return &Reader{rolloutReader{Handlers: New(b, nil)}, rolloutKey{party, namespace, name}}
}

// Read is the rollout as it is now.
func (r *Reader) Read(ctx context.Context) (rollout.Status, error) {
	seen, err := r.reader.read(ctx, r.key)
	return seen.status, err
}

// ReadRelease is one release of a rollout, the one of that record, whichever releases came after it. It is NotFound once its record is not kept any
// more.
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
		return rollout.Status{}, errors.New("it was never recorded as over, and another release has taken its place")
	}
	return seen.status, nil
}

// rolloutReader reads a rollout again and again: it asks the worker only when the history has grown. One goroutine at a time may use it.
type rolloutReader struct {
	*Handlers
	// runID and length say which run, and how much of its history, the remembered status is of.
	runID  string
	length int64
	status rollout.Status
}

// Read reads a rollout as it is now: from its workflow while that runs, and from its newest record when it is over.
func (r *rolloutReader) read(ctx context.Context, key rolloutKey) (rolloutSnapshot, error) {
	seen, err := backend.Read(ctx, r.Backend, backend.Reading[rolloutSnapshot]{
		WorkflowID: key.workflowID(),
		Record:     func() (*v1alpha1.ReleaseRecord, error) { return r.newestRecord(ctx, key) },
		Open: func(described *workflowservice.DescribeWorkflowExecutionResponse) (rolloutSnapshot, error) {
			return r.readOpen(ctx, key, described)
		},
		Complete: r.readComplete,
		Lost: func(described *workflowservice.DescribeWorkflowExecutionResponse, record *v1alpha1.ReleaseRecord) (rolloutSnapshot, error) {
			return r.readLost(ctx, described, record)
		},
	})
	if err == nil {
		seen.status.Conditions = conditions.OfRollout(seen.status)
	}
	return seen, err
}

// newestRecord is the record of the newest release of that name, whole.
func (h *Handlers) newestRecord(ctx context.Context, key rolloutKey) (*v1alpha1.ReleaseRecord, error) {
	records, err := h.Home.ListRecords(ctx, key.labels())
	if err != nil {
		return nil, err
	}
	for _, record := range records {
		whole, err := h.Home.GetRelease(ctx, record.Name)
		if failure.Is(err, failure.NotFound) {
			continue // it was withdrawn or pruned meanwhile
		}
		return whole, err
	}
	return nil, key.missing()
}

// readComplete is a rollout that is over.
func (h *Handlers) readComplete(record *v1alpha1.ReleaseRecord) (rolloutSnapshot, error) {
	var status rollout.Status
	if err := v1alpha1.DecodeBody(record.Outcome.Body, &status); err != nil {
		return rolloutSnapshot{}, fmt.Errorf("record %s: %w", record.Name, err)
	}
	status.Workflow = h.WorkflowRef(record.Spec.WorkflowID, record.Outcome.RunID)
	status.Record = record.Name
	return rolloutSnapshot{status: status}, nil
}

// readOpen asks the workflow when its history has grown; when no worker answers, what Temporal and the record know has to do.
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

// readUnanswered is a rollout whose workflow runs but whose worker does not answer: what it was asked, in the published phase.
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
	status.Reason = "the engine's workflow worker does not answer: this is the phase that was last published; " +
		"how far its steps are is not known"
	if status.WaitingFor = publishedWait(info); status.WaitingFor != nil && status.WaitingFor.Message == "" {
		status.WaitingFor.Message = "what it waits for was last published, without its gate; the engine's workflow worker does not answer"
	}
	status.Workflow = r.WorkflowRef(key.workflowID(), info.GetExecution().GetRunId())
	return rolloutSnapshot{status: status, open: true, unanswered: cause.Error()}, nil
}

// neverKnown is the reason of a rollout that has a record and no workflow.
const neverKnown = "it was accepted, but no workflow of it is known: it was never started, or Temporal has forgotten it; start it anew"

// readLost is a rollout without an outcome whose workflow does not run: it is being started, was never started, or was terminated.
func (r *rolloutReader) readLost(ctx context.Context, described *workflowservice.DescribeWorkflowExecutionResponse,
	record *v1alpha1.ReleaseRecord) (rolloutSnapshot, error) {
	var status rollout.Status
	if described != nil && r.Query(ctx, record.Spec.WorkflowID, &status) == nil && (status.Record == record.Name || status.Record == "") {
		status.Workflow = r.WorkflowRef(record.Spec.WorkflowID, described.GetWorkflowExecutionInfo().GetExecution().GetRunId())
		if status.Phase.Final() || status.FinishedAt != nil {
			return rolloutSnapshot{status: status}, nil // it ended well, only its record could not be written
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
	if time.Since(record.Spec.CreatedAt.Time) < start.Window {
		status.Reason = "is being started"
		return rolloutSnapshot{status: status, starting: true}, nil
	}
	status.Phase = rollout.PhaseFailed
	status.Reason = neverKnown
	return rolloutSnapshot{status: status}, nil
}

// lostRollout is a rollout whose workflow did not end by itself: what it left on the workload is still there.
func lostRollout(status rollout.Status, how enumspb.WorkflowExecutionStatus) rolloutSnapshot {
	status.Phase, status.WaitingFor = rollout.PhaseFailed, nil
	status.Reason = "its workflow " + backend.HowLost(how) + ": pods and traffic are where it left them; " +
		"start a new rollout of the workload, which brings them home first, or run slipway repair"
	return rolloutSnapshot{status: status}
}

// outlineRollout is what a record alone says of a rollout: everything is still to be done.
func (h *Handlers) outlineRollout(record *v1alpha1.ReleaseRecord) (rollout.Status, error) {
	spec, err := specOf(record)
	if err != nil {
		return rollout.Status{}, err
	}
	return h.asAsked(record.Spec.WorkflowID, store.RolloutAsked(record, spec)), nil
}

// asAsked is a rollout as it was asked, before anything is done.
func (h *Handlers) asAsked(workflowID string, asked machine.Asked) rollout.Status {
	return machine.NewMachine(machine.Setup{Asked: asked, Workflow: *h.WorkflowRef(workflowID, "")}, asked.CreatedAt).Status()
}

// specOf is what a rollout was asked.
func specOf(record *v1alpha1.ReleaseRecord) (strategy.Spec, error) {
	var spec strategy.Spec
	if err := v1alpha1.DecodeBody(record.Spec.Snapshot, &spec); err != nil {
		return spec, fmt.Errorf("record %s: %w", record.Name, err)
	}
	return spec, nil
}

// memoRecord is the record with which a workflow was started.
func memoRecord(described *workflowservice.DescribeWorkflowExecutionResponse) string {
	return backend.Memo[string](described.GetWorkflowExecutionInfo(), workflows.MemoRecord)
}

// publishedWait is what lists say that a rollout waits for, nil for nothing; gate and reason come from a memo of the same wait.
func publishedWait(info *workflowpb.WorkflowExecutionInfo) *rollout.WaitingFor {
	kind := rollout.WaitKind(execution.Published[string](info, workflows.AttributeWaitingFor.GetName()))
	if kind == "" {
		return nil
	}
	waiting := rollout.WaitingFor{Kind: kind, Since: execution.Published[time.Time](info, workflows.AttributeWaitingSince.GetName()).UTC()}
	if shown := backend.PublishedShown(info); shown.WaitingFor != nil && shown.WaitingFor.Kind == kind &&
		shown.WaitingFor.Since.Sub(waiting.Since).Abs() < time.Second {
		waiting = *shown.WaitingFor
		waiting.Message = shown.Reason
	}
	return &waiting
}

// publishedPhase is the phase that a rollout's workflow last published; Progressing until it has published one.
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
		return stream.OfWorkflow(h.Backend, key.workflowID(), func(ctx context.Context) (stream.Snapshot, error) {
			seen, err := reader.read(ctx, key)
			return stream.Snapshot{Value: seen.status, Workflow: seen.status.Workflow, Over: !seen.open && !seen.starting,
				Unanswered: seen.unanswered}, err
		})
	})
}
