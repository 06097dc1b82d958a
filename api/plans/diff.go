package plans

import (
	"errors"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/schema"
)

// DiffPlan answers POST /api/v1/plans/{name}/diff.
func (h *Handlers) DiffPlan(c echo.Context, name schema.PlanName) error { return errors.New("TODO") }
