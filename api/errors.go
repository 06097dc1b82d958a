package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/problem"
)

// answerError is the one place where errors become answers.
func (h *handlers) answerError(err error, c echo.Context) {
	if c.Response().Committed {
		return // an event stream has begun: there is nothing left to say in its status
	}
	if errors.Is(err, context.Canceled) && c.Request().Context().Err() != nil {
		c.Response().Status = statusClientGone // for the log only; nobody reads the answer
		return
	}
	answer := problem.Of(err).Problem
	answer.Instance = c.Request().URL.Path
	answer.RequestID = requestID(c)
	if answer.Status >= http.StatusInternalServerError {
		h.Log.Warn("request failed", "request", answer.RequestID, "method", c.Request().Method, "path", answer.Instance, "status",
			answer.Status, "error", err)
	}
	c.Response().Header().Set(echo.HeaderContentType, "application/problem+json")
	c.Response().WriteHeader(answer.Status)
	if c.Request().Method == http.MethodHead {
		return
	}
	if err := json.NewEncoder(c.Response()).Encode(answer); err != nil {
		h.Log.Debug("answer not sent", "request", answer.RequestID, "error", err)
	}
}

// statusClientGone is what the log shows for a caller that hung up.
const statusClientGone = 499
