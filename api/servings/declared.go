package servings

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/declared"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/strictyaml"
)

func (h *Handlers) writer() declared.Writer { return declared.Writer{Home: h.Home} }

// PutServing answers PUT /api/v1/servings/{id}.
func (h *Handlers) PutServing(c echo.Context, id schema.ServingID, params schema.PutServingParams) error {
	spec, err := input.DecodeNamed(c, "serving", id, declared.CheckName, strictyaml.Decode[kuscia.KusciaDeploymentSpec])
	if err != nil {
		return err
	}
	result, err := h.writer().PutServing(c.Request().Context(), declared.ServingRequest{ID: id, Spec: spec,
		AffinityMode: input.Text(params.AffinityMode), Generation: params.Generation})
	var refusal declared.Refusal
	if errors.As(err, &refusal) {
		return problem.Refused.Because("serving %s cannot run: %s", id, problem.Summary(refusal)).Listing(refusal)
	}
	return answerPut(c, result, err)
}

func answerPut(c echo.Context, result schema.PutDeclaredResult, err error) error {
	switch {
	case err != nil:
		return problem.RefusedIsMalformed(err)
	case result.Changed:
		return c.JSON(http.StatusAccepted, result)
	}
	return c.JSON(http.StatusOK, result)
}

// DeleteServing answers DELETE /api/v1/servings/{id}.
func (h *Handlers) DeleteServing(c echo.Context, id schema.ServingID) error {
	ctx := c.Request().Context()
	return answer.NoContent(c, failure.RetryOnConflict("serving "+id, func() error {
		kd, err := h.findServing(ctx, id)
		if err != nil {
			return err
		}
		return h.Home.DeleteServing(ctx, kd)
	}))
}
