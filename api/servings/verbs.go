package servings

import (
	"context"
	"fmt"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/verbs"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/workflows"
)

// ApproveServing answers POST /api/v1/servings/{id}/approve.
func (h *Handlers) ApproveServing(c echo.Context, id schema.ServingID, params schema.ApproveServingParams) error {
	return h.sendVerb(c, id, serving.VerbApprove, params.SlipwayVia)
}

// PauseServing answers POST /api/v1/servings/{id}/pause.
func (h *Handlers) PauseServing(c echo.Context, id schema.ServingID, params schema.PauseServingParams) error {
	return h.sendVerb(c, id, serving.VerbPause, params.SlipwayVia)
}

// ResumeServing answers POST /api/v1/servings/{id}/resume.
func (h *Handlers) ResumeServing(c echo.Context, id schema.ServingID, params schema.ResumeServingParams) error {
	return h.sendVerb(c, id, serving.VerbResume, params.SlipwayVia)
}

// StopServing answers POST /api/v1/servings/{id}/stop.
func (h *Handlers) StopServing(c echo.Context, id schema.ServingID, params schema.StopServingParams) error {
	return h.sendVerb(c, id, serving.VerbStop, params.SlipwayVia)
}

// sendVerb sends a verb and responds with the serving as it is afterwards.
func (h *Handlers) sendVerb(c echo.Context, id string, verb serving.Verb, via *schema.Via) error {
	request, err := readVerb(c, verb, via)
	if err != nil {
		return err
	}
	return verbs.Execute(c, h.Backend, &servingVerb{Handlers: h, id: id, verb: verb},
		verbs.Command{Verb: string(verb), Key: request.Key, Payload: request})
}

// readVerb reads the body of a verb. Fields of other verbs are refused, not ignored.
func readVerb(c echo.Context, verb serving.Verb, via *schema.Via) (workflows.ServingVerbRequest, error) {
	var request workflows.ServingVerbRequest
	party := input.Field{Name: "party", MaxLength: workflows.MaxParty, Into: &request.Party}
	gate := input.Field{Name: "gate", MaxLength: input.MaxGate, Into: &request.Gate}
	if verb != serving.VerbApprove {
		party.Refused, gate.Refused = "is for approve only: leave it out", "is for approve only: leave it out"
	}
	err := verbs.Read(c, via, &request.VerbRequest,
		input.Field{Name: "step", Refused: "is not taken here: a serving has parties; send party, or leave it out"},
		party, gate)
	if err != nil {
		return request, err
	}
	if verb == serving.VerbApprove && request.Gate == "" && request.Party == "" {
		return request, problem.BadField("gate", "is missing: to approve, send waitingFor.gate of the operation, or "+
			"the waiting party; "+
			"without either, the request could reach another party than the reviewed one")
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
		"an update starts one",
		s.id, s.verb), view)
}

// Name adds the workflow of the operation to a problem.
func (s *servingVerb) Name(p *problem.Error) *problem.Error { return p.HeldBy(s.workflowID) }

// Show adds the serving to a problem.
func (s *servingVerb) Show(p *problem.Error, view serving.View) *problem.Error {
	p.Serving = &view
	return p
}
