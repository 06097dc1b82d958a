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
	return h.carry(c, id, serving.VerbApprove, params.SlipwayVia)
}

// PauseServing answers POST /api/v1/servings/{id}/pause.
func (h *Handlers) PauseServing(c echo.Context, id schema.ServingID, params schema.PauseServingParams) error {
	return h.carry(c, id, serving.VerbPause, params.SlipwayVia)
}

// ResumeServing answers POST /api/v1/servings/{id}/resume.
func (h *Handlers) ResumeServing(c echo.Context, id schema.ServingID, params schema.ResumeServingParams) error {
	return h.carry(c, id, serving.VerbResume, params.SlipwayVia)
}

// StopServing answers POST /api/v1/servings/{id}/stop.
func (h *Handlers) StopServing(c echo.Context, id schema.ServingID, params schema.StopServingParams) error {
	return h.carry(c, id, serving.VerbStop, params.SlipwayVia)
}

// carry carries out a verb and answers the serving as it is then.
func (h *Handlers) carry(c echo.Context, id string, verb serving.Verb, via *schema.Via) error {
	request, err := readVerb(c, verb, via)
	if err != nil {
		return err
	}
	return verbs.Carry(c, h.Backend, &servingVerb{Handlers: h, id: id, verb: verb},
		verbs.Command{Verb: string(verb), Key: request.Key, Payload: request})
}

// readVerb reads a verb's body. What belongs to another verb is refused rather than ignored.
func readVerb(c echo.Context, verb serving.Verb, via *schema.Via) (workflows.ServingVerbRequest, error) {
	var request workflows.ServingVerbRequest
	party := input.Field{Name: "party", Most: workflows.MaxParty, Into: &request.Party}
	gate := input.Field{Name: "gate", Most: input.MaxGate, Into: &request.Gate}
	if verb != serving.VerbApprove {
		party.Refused, gate.Refused = "is for approve only: leave it out", "is for approve only: leave it out"
	}
	err := verbs.Read(c, via, &request.VerbRequest,
		input.Field{Name: "step", Refused: "is not taken here: a serving has parties; send party, or leave it out"}, party, gate)
	if err != nil {
		return request, err
	}
	if verb == serving.VerbApprove && request.Gate == "" && request.Party == "" {
		return request, problem.BadField("gate", "is missing: say what to approve, by waitingFor.gate of the operation or by the party "+
			"that waits; one that names neither could meet another party than the one that was looked at")
	}
	return request, nil
}

// servingVerb is a serving to whose operation a verb is sent.
type servingVerb struct {
	*Handlers
	id   string
	verb serving.Verb
	// found is the serving in which the operation was found that is under way, workflowID the workflow of that operation.
	found      serving.View
	workflowID string
}

// Workflow is the workflow of the operation that is under way.
func (s *servingVerb) Workflow(ctx context.Context) (workflowID string, err error) {
	s.found, err = s.readServing(ctx, s.id)
	if op := s.found.Operation; err == nil && op != nil && !op.Done && op.Workflow != nil {
		s.workflowID = op.Workflow.ID
	}
	return s.workflowID, err
}

// Now reads the serving. An operation tells the status before it answers a verb.
func (s *servingVerb) Now(ctx context.Context) (now serving.View, history []audit.Entry, err error) {
	if now, err = s.readServing(ctx, s.id); err != nil || now.Operation == nil {
		return now, nil, err
	}
	for _, e := range now.Operation.History {
		history = append(history, audit.Entry{Key: e.Key, Verb: audit.Verb(e.Verb), Message: e.Message, Outcome: audit.Outcome(e.Outcome)})
	}
	return now, history, nil
}

// Known is the serving as it was before the verb: the state of its operation is no phase of a serving.
func (s *servingVerb) Known(_ context.Context, _, reason string) serving.View {
	s.found.Message = reason
	return s.found
}

// Closed answers a verb on a serving of which no operation can answer.
func (s *servingVerb) Closed(_ context.Context, view serving.View) (serving.View, error) {
	op := view.Operation
	switch {
	case op != nil && !op.Done:
		return view, verbs.Refusal(s, "the operation ends just now, or somebody has ended its workflow and it is begun anew: repeat in a minute", view)
	case op == nil || op.Generation < view.Generation:
		return view, verbs.Refusal(s,
			fmt.Sprintf("generation %d of the spec has not been begun with yet: repeat in some seconds", view.Generation), view)
	}
	return view, s.Show(problem.NotFound.Because("no operation on serving %s runs, so that there is nothing to %s: an update begins one",
		s.id, s.verb), view)
}

// Name names the workflow of the operation.
func (s *servingVerb) Name(p *problem.Error) *problem.Error { return p.HeldBy(s.workflowID) }

// Show shows the serving.
func (s *servingVerb) Show(p *problem.Error, view serving.View) *problem.Error {
	p.Serving = &view
	return p
}
