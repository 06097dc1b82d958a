package servings

import (
	"context"
	"fmt"
	"path"
	"time"

	"github.com/labstack/echo/v4"
	enumspb "go.temporal.io/api/enums/v1"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/stream"
	"slipway.io/slipway/api/verbs"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/workflows"
)

// ApproveServing answers POST /api/v1/servings/{id}/approve, and all other verbs: it sends the verb and responds with
// the serving as it is afterwards.
func (h *Handlers) ApproveServing(c echo.Context, id schema.ServingID, params schema.ApproveServingParams) error {
	verb := serving.Verb(path.Base(c.Path()))
	request, err := readVerb(c, verb, params.SlipwayVia)
	if err != nil {
		return err
	}
	return verbs.Execute(c, h.Backend, &servingVerb{Handlers: h, id: id, verb: verb},
		verbs.Command{Verb: string(verb), Key: request.Key, Payload: request})
}

// readVerb reads the body of a verb. Fields of other verbs are refused, not ignored.
func readVerb(c echo.Context, verb serving.Verb, via *schema.Via) (workflows.ServingVerbRequest, error) {
	var request workflows.ServingVerbRequest
	refused := input.Unless(verb == serving.VerbApprove, "is for approve only: leave it out")
	err := verbs.Read(c, via, &request.VerbRequest,
		input.Field{Name: "step", Refused: "is not taken here: a serving has parties; send party, or leave it out"},
		input.Field{Name: "party", MaxLength: workflows.MaxParty, Into: &request.Party, Refused: refused},
		input.Field{Name: "gate", MaxLength: input.MaxGate, Into: &request.Gate, Refused: refused})
	if err != nil {
		return request, err
	}
	if verb == serving.VerbApprove && request.Gate == "" && request.Party == "" {
		return request, problem.BadField("gate", "is missing: to approve, send waitingFor.gate of the operation, or "+
			"the waiting party; without either, the request could reach another party than the reviewed one")
	}
	return request, nil
}

// servingVerb is the target of a verb: the running operation of a serving.
type servingVerb struct {
	*Handlers
	id   string
	verb serving.Verb
	// found is the serving as read before the verb, workflowID the workflow of its running operation.
	found      serving.View
	workflowID string
}

// Workflow returns the workflow of the running operation.
func (s *servingVerb) Workflow(ctx context.Context) (workflowID string, err error) {
	s.found, err = s.readServing(ctx, s.id)
	if op := s.found.Operation; err == nil && op != nil && !op.Done && op.Workflow != nil {
		s.workflowID = op.Workflow.ID
	}
	return s.workflowID, err
}

// Now reads the serving. An operation updates the serving's status before it answers a verb.
func (s *servingVerb) Now(ctx context.Context) (now serving.View, history []audit.Entry, err error) {
	if now, err = s.readServing(ctx, s.id); err != nil || now.Operation == nil {
		return now, nil, err
	}
	for _, e := range now.Operation.History {
		history = append(history, audit.Entry{Key: e.Key, Verb: audit.Verb(e.Verb), Message: e.Message,
			Outcome: audit.Outcome(e.Outcome)})
	}
	return now, history, nil
}

// Fallback returns the serving as read before the verb: the state of its operation is not a phase of the serving.
func (s *servingVerb) Fallback(_ context.Context, _, reason string) serving.View {
	s.found.Message = reason
	return s.found
}

// Closed answers a verb on a serving without a running operation.
func (s *servingVerb) Closed(_ context.Context, view serving.View) (serving.View, error) {
	op := view.Operation
	switch {
	case op != nil && !op.Done:
		return view, verbs.Refusal(s, "the operation is ending, or its workflow was terminated and is being started "+
			"again: repeat in a minute", view)
	case op == nil || op.Generation < view.Generation:
		return view, verbs.Refusal(s,
			fmt.Sprintf("the operation for generation %d of the spec has not started yet: repeat in a few seconds",
				view.Generation), view)
	}
	return view, s.Show(problem.NotFound.Because("no operation on serving %s is running, so there is nothing to %s: "+
		"an update starts one", s.id, s.verb), view)
}

// Name adds the workflow of the operation to a problem.
func (s *servingVerb) Name(p *problem.Error) *problem.Error { return p.HeldBy(s.workflowID) }

// Show adds the serving to a problem.
func (s *servingVerb) Show(p *problem.Error, view serving.View) *problem.Error {
	p.Serving = &view
	return p
}

// GetServingHistory answers GET /api/v1/servings/{id}/history: the running operation, and the past ones from their
// records.
func (h *Handlers) GetServingHistory(c echo.Context, id schema.ServingID, params schema.GetServingHistoryParams) error {
	asked, err := answer.ParsePage(params.Limit, params.Cursor)
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
				"recorded: GET /api/v1/servings lists those that exist", id)
		case err != nil:
			return err
		}
	}
	list, err := answer.FromRecords(asked, records, func(record *v1alpha1.ReleaseRecord) (schema.ServingRelease, bool,
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
	nothing := serving.Release{Workflow: &audit.WorkflowRef{}}
	record, err := h.Home.GetRelease(ctx, name)
	if err != nil {
		return nothing, err
	}
	var release serving.Release
	var request serving.ReleaseRequest
	if record.Outcome != nil {
		release, err = backend.Decode[serving.Release](record, record.Outcome.Body)
	} else if request, err = backend.Decode[serving.ReleaseRequest](record, record.Spec.Snapshot); err == nil {
		release = request.Release()
	}
	if err != nil {
		return nothing, err
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
	var state workflows.ServingState
	switch err := h.Query(ctx, release.Workflow.ID, runID, &state); {
	case err != nil:
		release.Message = "the engine's workflow worker does not answer: its current state is unknown"
		return release
	case state.Ending != nil:
		return release.Ended(*state.Ending)
	}
	release.Message, release.WaitingFor = state.Message, state.WaitingFor
	if state.History != nil {
		release.History, release.RefusalsDropped = state.History, state.RefusalsDropped
	}
	return release
}

// confirmInterval is how often a watched serving is read without a notification, to confirm that the stream works.
const confirmInterval = 10 * time.Second

// WatchServing answers GET /api/v1/servings/{id}/events. The state of a serving is in its KusciaDeployment; it is read
// when that has changed. The stream ends only when the serving is deleted.
func (h *Handlers) WatchServing(c echo.Context, id schema.ServingID, _ schema.WatchServingParams) error {
	return h.Streams.Serve(c, serving.WorkflowPrefix(id), func() stream.Source {
		return stream.Source{Interval: confirmInterval,
			Read: func(ctx context.Context) (seen stream.Snapshot, err error) {
				view, err := h.readServing(ctx, id)
				if seen.Value = view; view.Operation != nil {
					seen.Workflow = view.Operation.Workflow
				}
				return seen, err
			},
			Watch: func(ctx context.Context, nudge func()) {
				changed, leave := h.Home.FollowServing(id)
				defer leave()
				nudge() // covers changes before the subscription
				for ctx.Err() == nil {
					select {
					case <-ctx.Done():
					case <-changed:
						nudge()
					}
				}
			}}
	})
}
