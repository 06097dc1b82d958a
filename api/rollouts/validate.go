package rollouts

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
)

// ValidateRollout answers POST /api/v1/rollouts/validate: every check of a start, without a write.
func (h *Handlers) ValidateRollout(c echo.Context) error {
	request, wrong, err := input.Decode(c, strategy.DecodeRequest)
	if err != nil {
		return err
	}
	result := schema.RolloutValidateResult{Warnings: []string{}, Errors: problem.Fields(wrong)}
	if len(wrong) == 0 {
		ctx, cancel := context.WithTimeout(c.Request().Context(), start.Timeout)
		defer cancel()
		if err := h.validateRollout(ctx, request, &result); err != nil {
			return err
		}
	}
	result.Valid = len(result.Errors) == 0
	return c.JSON(http.StatusOK, result)
}

// validateRollout adds what the catalogue of parties, the home cluster and the party's worker say.
func (h *Handlers) validateRollout(ctx context.Context, request strategy.Request, result *schema.RolloutValidateResult) error {
	result.Warnings = append(result.Warnings, request.Warnings...)
	s := &rolloutStart{Handlers: h, request: request}
	if err := s.place(ctx); err != nil {
		return asFindings(err, result)
	}
	now := time.Now().UTC()
	outline := machine.NewMachine(machine.Setup{Spec: s.request.Spec, Workflow: *h.WorkflowRef(s.key.workflowID(), ""), CreatedAt: now,
		Actor: request.Actor, Reason: request.Reason, Via: string(schema.FrontDoorHTTP)}, now).Status()
	result.Rollout = &outline
	found, err := s.findings(ctx)
	if err != nil {
		return asFindings(err, result)
	}
	problems, warnings := s.weigh(found)
	result.Errors, result.Warnings = append(result.Errors, problems...), append(result.Warnings, warnings...)
	if found.Frozen {
		result.Warnings = append(result.Warnings, "an earlier release left the workload frozen between two versions: this one brings it home first")
	}
	held, err := s.heldBy(ctx, found)
	if err != nil {
		return err
	}
	if held != "" {
		result.Warnings = append(result.Warnings, held+" just now")
	}
	described, err := h.Describe(ctx, s.key.workflowID())
	if err == nil && execution.IsOpen(described) && !request.Supersede {
		result.Warnings = append(result.Warnings, s.key.String()+" is being released just now: wait until it is over, or give supersede: true")
	}
	return err
}

// asFindings turns a refusal into what was found; any other error stays one.
func asFindings(err error, result *schema.RolloutValidateResult) error {
	var refused *problem.Error
	if errors.As(err, &refused) && len(refused.Errors) > 0 && (refused.Status == problem.Refused.Status ||
		refused.Status == problem.Malformed.Status) {
		result.Errors = append(result.Errors, refused.Errors...)
		return nil
	}
	return err
}
