package servings

import (
	"context"
	"fmt"
	"time"

	"github.com/labstack/echo/v4"
	enumspb "go.temporal.io/api/enums/v1"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/page"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/stream"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/workflows"
)

// GetServingHistory answers GET /api/v1/servings/{id}/history: the running operation, and the past ones from their
// records.
func (h *Handlers) GetServingHistory(c echo.Context, id schema.ServingID, params schema.GetServingHistoryParams) error {
	asked, err := page.Parse(params.Limit, params.Cursor)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	records, err := h.Home.ListRecords(ctx, map[string]string{v1alpha1.LabelKind: v1alpha1.KindServing,
		v1alpha1.LabelSubject: v1alpha1.SubjectLabel(id)})
	if err != nil {
		return err
	}
	if len(records) == 0 {
		switch _, err := h.findServing(ctx, id); {
		case problem.IsNotFound(err):
			return problem.NotFound.Because("serving %s does not exist, and no operation on one of that ID is "+
				"recorded: "+
				"GET /api/v1/servings lists those that exist", id)
		case err != nil:
			return err
		}
	}
	list, err := page.FromRecords(asked, records, func(record *v1alpha1.ReleaseRecord) (schema.ServingRelease, bool,
		error) {
		release, err := h.servingRelease(ctx, record.Name)
		return release, true, err
	})
	return answer.JSON(c, list, err)
}

// servingRelease reads one operation on a serving, from its record and, if that has no outcome, from its workflow.
func (h *Handlers) servingRelease(ctx context.Context, name string) (serving.Release, error) {
	release, err := h.recordedServing(ctx, name)
	if err == nil && release.State == serving.StateProgressing {
		release, err = h.addCurrentState(ctx, release)
	}
	release.Workflow = h.WorkflowRef(release.Workflow.ID, release.Workflow.RunID)
	return release, err
}

// recordedServing reads an operation from its record alone.
func (h *Handlers) recordedServing(ctx context.Context, name string) (serving.Release, error) {
	nothing := serving.Release{Workflow: &plan.WorkflowRef{}}
	record, err := h.Home.GetRelease(ctx, name)
	if err != nil {
		return nothing, err
	}
	var release serving.Release
	var request serving.ReleaseRequest
	if record.Outcome != nil {
		err = v1alpha1.DecodeBody(record.Outcome.Body, &release)
	} else if err = v1alpha1.DecodeBody(record.Spec.Snapshot, &request); err == nil {
		release = request.Release()
	}
	if err != nil {
		return nothing, fmt.Errorf("record %s: %w", name, err)
	}
	release.Record = name
	return release, nil
}

// addCurrentState adds the current state of an operation. If its workflow is closed although its record has no outcome,
// the workflow was terminated.
func (h *Handlers) addCurrentState(ctx context.Context, release serving.Release) (serving.Release, error) {
	run := release.Workflow
	callCtx, cancel := backend.WithCallTimeout(ctx)
	defer cancel()
	described, err := execution.OfRun(callCtx, h.Temporal, run.ID, run.RunID)
	if err != nil {
		return release, err
	}
	newest := described.GetWorkflowExecutionInfo().GetExecution().GetRunId()
	if execution.IsOpen(described) {
		return h.queryOperation(ctx, release, newest), nil
	}
	// It may have ended after its record was read.
	if recorded, readErr := h.recordedServing(ctx, release.Record); readErr != nil ||
		recorded.State != serving.StateProgressing {
		return recorded, readErr
	}
	if described == nil {
		return lostServing(release, "no longer exists"), nil
	}
	info := described.GetWorkflowExecutionInfo()
	if info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED { // only its record could not be written
		if ended := h.queryOperation(ctx, release, newest); ended.State != serving.StateProgressing {
			return ended, nil
		}
	}
	at := info.GetCloseTime().AsTime()
	release.FinishedAt = &at
	return lostServing(release, backend.AbnormalEnd(info.GetStatus())), nil
}

// lostServing is an operation without a recorded outcome that no longer runs.
func lostServing(release serving.Release, how string) serving.Release {
	release.State = serving.StateFailed
	release.Message = "it has no recorded outcome, and its workflow " + how +
		": a newer operation, which the engine starts automatically, completes its work"
	return release
}

// queryOperation queries the state or the outcome of an operation's run. If no worker answers, it only sets the
// message.
func (h *Handlers) queryOperation(ctx context.Context, release serving.Release, runID string) serving.Release {
	callCtx, cancel := backend.WithCallTimeout(ctx)
	defer cancel()
	var state workflows.ServingState
	value, err := h.Temporal.QueryWorkflow(callCtx, release.Workflow.ID, runID, workflows.QueryState)
	if err == nil {
		err = value.Get(&state)
	}
	switch {
	case err != nil:
		release.Message = "the engine's workflow worker does not answer: its current state is unknown"
		return release
	case state.Ending != nil:
		return release.Ended(*state.Ending)
	}
	release.Message, release.WaitingFor = state.Message, state.WaitingFor
	if state.History != nil {
		release.History = state.History
	}
	return release
}

// confirmInterval is how often a watched serving is read without a notification, to confirm that the stream works.
const confirmInterval = 10 * time.Second

// WatchServing answers GET /api/v1/servings/{id}/events. The state of a serving is in its KusciaDeployment; it is read
// when that has changed.
func (h *Handlers) WatchServing(c echo.Context, id schema.ServingID, _ schema.WatchServingParams) error {
	return h.streams.Serve(c, serving.WorkflowPrefix(id), func() stream.Source {
		return stream.Source{Read: h.look(id), Watch: h.tail(id), Interval: confirmInterval}
	})
}

// look returns the function that reads a serving for its stream. The stream ends only when the serving is deleted.
func (h *Handlers) look(id string) func(ctx context.Context) (stream.Snapshot, error) {
	return func(ctx context.Context) (stream.Snapshot, error) {
		view, err := h.readServing(ctx, id)
		var workflow *plan.WorkflowRef
		if view.Operation != nil {
			workflow = view.Operation.Workflow
		}
		return stream.Snapshot{Value: view, Workflow: workflow}, err
	}
}

// tail returns the function that waits for changes of a serving, on the shared watch of all servings.
func (h *Handlers) tail(id string) func(ctx context.Context, nudge func()) {
	return func(ctx context.Context, nudge func()) {
		changed, leave := h.Home.FollowServing(id)
		defer leave()
		nudge() // covers changes before the subscription
		for {
			select {
			case <-ctx.Done():
				return
			case <-changed:
				nudge()
			}
		}
	}
}
