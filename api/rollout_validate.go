package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/release/rollout"
)

// ValidateRollout answers POST /api/v1/rollouts/validate: every check of a start, without a write.
func (h *handlers) ValidateRollout(c echo.Context) error {
	body, isJSON, err := readDocument(c)
	if err != nil {
		return err
	}
	request, wrong := decodeRollout(body, isJSON)
	result := RolloutValidateResult{Warnings: []string{}, Errors: fieldProblems(wrong)}
	if len(wrong) == 0 {
		ctx, cancel := context.WithTimeout(c.Request().Context(), executeTimeout)
		defer cancel()
		if err := h.validateRollout(ctx, request, &result); err != nil {
			return err
		}
	}
	result.Valid = len(result.Errors) == 0
	return c.JSON(http.StatusOK, result)
}

// validateRollout adds what the catalogue of parties, the home cluster and the party's worker say.
func (h *handlers) validateRollout(ctx context.Context, request rollout.Request, result *RolloutValidateResult) error {
	result.Warnings = append(result.Warnings, request.Warnings...)
	s := &rolloutStart{handlers: h, request: request}
	if err := s.place(ctx); err != nil {
		return asFindings(err, result)
	}
	now := time.Now().UTC()
	outline := rollout.NewMachine(rollout.Setup{Spec: s.request.Spec, Workflow: *h.workflowRef(s.key.workflowID(), ""), CreatedAt: now,
		Actor: request.Actor, Reason: request.Reason, Via: string(FrontDoorHTTP)}, now).Status()
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
	described, err := h.describe(ctx, s.key.workflowID())
	if err == nil && described != nil && isOpen(described) && !request.Supersede {
		result.Warnings = append(result.Warnings, s.key.String()+" is being released just now: wait until it is over, or give supersede: true")
	}
	return err
}

// asFindings turns a refusal into what was found; any other error stays one.
func asFindings(err error, result *RolloutValidateResult) error {
	var problem *problemError
	if errors.As(err, &problem) && len(problem.Errors) > 0 && (problem.Status == kindRefused.status || problem.Status == kindMalformed.status) {
		result.Errors = append(result.Errors, problem.Errors...)
		return nil
	}
	return err
}
