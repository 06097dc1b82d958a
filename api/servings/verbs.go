package servings

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/workflows"
)

// ApproveServing answers POST /api/v1/servings/{id}/approve.
func (h *Handlers) ApproveServing(c echo.Context, id schema.ServingID, params schema.ApproveServingParams) error {
	return h.servingVerb(c, id, serving.VerbApprove, params.SlipwayVia)
}

// PauseServing answers POST /api/v1/servings/{id}/pause.
func (h *Handlers) PauseServing(c echo.Context, id schema.ServingID, params schema.PauseServingParams) error {
	return h.servingVerb(c, id, serving.VerbPause, params.SlipwayVia)
}

// ResumeServing answers POST /api/v1/servings/{id}/resume.
func (h *Handlers) ResumeServing(c echo.Context, id schema.ServingID, params schema.ResumeServingParams) error {
	return h.servingVerb(c, id, serving.VerbResume, params.SlipwayVia)
}

// StopServing answers POST /api/v1/servings/{id}/stop.
func (h *Handlers) StopServing(c echo.Context, id schema.ServingID, params schema.StopServingParams) error {
	return h.servingVerb(c, id, serving.VerbStop, params.SlipwayVia)
}

// servingVerb carries out a verb and answers the serving as it is then. What its operation refuses is 409 with its reason and its fresh state.
func (h *Handlers) servingVerb(c echo.Context, id string, verb serving.Verb, via *schema.Via) error {
	request, err := servingVerbRequest(c, verb, via)
	if err != nil {
		return err
	}
	command := servingCommand{Handlers: h, id: id, verb: verb, request: request}
	// A verb that is on its way is carried out whether or not the caller still listens.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request().Context()), start.Timeout)
	defer cancel()
	view, err := command.run(ctx)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, view)
}

// servingVerbRequest reads a verb's body. What belongs to another verb is refused rather than ignored.
func servingVerbRequest(c echo.Context, verb serving.Verb, via *schema.Via) (workflows.ServingVerbRequest, error) {
	var request workflows.ServingVerbRequest
	party := input.Field{Name: "party", Most: workflows.MaxParty, Into: &request.Party}
	gate := input.Field{Name: "gate", Most: input.MaxGate, Into: &request.Gate}
	if verb != serving.VerbApprove {
		party.Refused, gate.Refused = "is for approve only: leave it out", "is for approve only: leave it out"
	}
	err := input.Fields(c,
		input.Field{Name: "actor", Most: input.MaxActor, Into: &request.Actor},
		input.Field{Name: "reason", Most: input.MaxReason, Into: &request.Reason},
		input.Field{Name: "key", Most: workflows.MaxKey, Into: &request.Key},
		input.Field{Name: "step", Refused: "is not taken here: a serving has parties; send party, or leave it out"},
		party, gate)
	if err != nil {
		return request, err
	}
	if verb == serving.VerbApprove && request.Gate == "" && request.Party == "" {
		return request, problem.BadField("gate", "is missing: say what to approve, by waitingFor.gate of the operation or by the party that waits; one that names neither could meet another party than the one that was looked at")
	}
	if request.Via, err = input.FrontDoor(via); err != nil {
		return request, err
	}
	if request.Key == "" {
		request.Key = uuid.NewString()
	}
	return request, nil
}

// servingCommand is one verb on its way to the operation on a serving.
type servingCommand struct {
	*Handlers
	id      string
	verb    serving.Verb
	request workflows.ServingVerbRequest
}

// run sends the verb as an Update to the operation that is under way.
func (s *servingCommand) run(ctx context.Context) (serving.View, error) {
	view, err := s.readServing(ctx, s.id)
	if err != nil {
		return view, err
	}
	op := view.Operation
	if op == nil || op.Done || op.Workflow == nil {
		return view, s.withoutOperation(view)
	}
	var response workflows.ServingVerbResponse
	err = s.Update(ctx, backend.WorkflowUpdate{WorkflowID: op.Workflow.ID, Name: string(s.verb), Key: s.request.Key, Request: s.request}, &response)
	if err != nil {
		return s.unheard(ctx, op.Workflow.ID, err)
	}
	// The operation has told the status before it has answered.
	if view, err = s.readServing(ctx, s.id); err != nil {
		return view, err
	}
	if response.Outcome == plan.OutcomeRefused {
		return view, s.refusal(response.Message, view)
	}
	if earlier := s.earlier(view); earlier != nil {
		return view, earlier.err
	}
	return view, nil
}

// unheard is the answer to a verb that the operation did not answer: it is over, or gone, or nobody is there to answer.
func (s *servingCommand) unheard(ctx context.Context, workflowID string, cause error) (serving.View, error) {
	var missing *serviceerror.NotFound
	var refused *temporal.ApplicationError
	switch {
	case errors.As(cause, &missing), errors.As(cause, &refused) && refused.Type() == backend.UpdateCutOff:
		view, err := s.readServing(ctx, s.id)
		if err != nil {
			return view, err
		}
		return view, s.withoutOperation(view)
	case errors.As(cause, &refused):
		return serving.View{}, problem.Malformed.Because("%s was not taken: %s", s.verb, refused.Message())
	case backend.UpdateUnheard(cause):
		return serving.View{}, problem.Unreachable.Because("no workflow worker of the engine answered in time: the outcome of %s is unknown; repeat with the same key, %q",
			s.verb, s.request.Key).HeldBy(workflowID)
	}
	return serving.View{}, fmt.Errorf("%s of serving %s: %w", s.verb, s.id, cause)
}

// withoutOperation answers a verb on a serving of which no operation can answer. A repeat of a verb that the last one had taken gets the same answer as then.
func (s *servingCommand) withoutOperation(view serving.View) error {
	if earlier := s.earlier(view); earlier != nil {
		return earlier.err
	}
	op := view.Operation
	switch {
	case op != nil && !op.Done:
		return s.refusal("the operation ends just now, or somebody has ended its workflow and it is begun anew: repeat in a minute", view)
	case op == nil || op.Generation < view.Generation:
		return s.refusal(fmt.Sprintf("generation %d of the spec has not been begun with yet: repeat in some seconds", view.Generation), view)
	}
	problem := problem.NotFound.Because("no operation on serving %s runs, so that there is nothing to %s: an update begins one", s.id, s.verb)
	problem.Serving = &view
	return problem
}

// earlierVerb is what became of the verb that the same key was first sent with; err is nil when it was carried out.
type earlierVerb struct{ err error }

// earlier looks the key up among what was sent to the operation; nil when it is new.
func (s *servingCommand) earlier(view serving.View) *earlierVerb {
	if view.Operation == nil {
		return nil
	}
	for _, decision := range view.Operation.History {
		switch {
		case decision.Key != s.request.Key:
		case decision.Verb != string(s.verb):
			return &earlierVerb{s.refusal(fmt.Sprintf("the key %q was used for %s: nothing was done; take a new key", s.request.Key, decision.Verb), view)}
		case decision.Outcome == string(plan.OutcomeRefused):
			return &earlierVerb{s.refusal(decision.Message, view)}
		default:
			return &earlierVerb{}
		}
	}
	return nil
}

func (s *servingCommand) refusal(message string, view serving.View) error {
	problem := problem.Conflict.Because("%s", message)
	problem.Serving = &view
	return problem
}
