package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"
	"go.temporal.io/api/serviceerror"

	"slipway.io/slipway/release/failure"
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
	answer := problemOf(err).Problem
	answer.Instance = c.Request().URL.Path
	answer.RequestID = requestID(c)
	if answer.Status >= http.StatusInternalServerError {
		h.Log.Warn("request failed", "request", answer.RequestID, "method", c.Request().Method, "path", answer.Instance, "status", answer.Status, "error", err)
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

// problemOf is the problem that an error is.
func problemOf(err error) *problemError {
	var ready *problemError
	if errors.As(err, &ready) {
		return ready
	}
	var typed *failure.Error
	if errors.As(err, &typed) {
		return problemOfFailure(typed)
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return kindTooLarge.because("the body is larger than %d MiB: split the document", tooLarge.Limit>>20)
	}
	var web *echo.HTTPError
	if errors.As(err, &web) {
		return problemOfEcho(web)
	}
	if temporalAway(err) {
		return kindUnreachable.because("Temporal does not answer (%v): repeat the request when it is back", err)
	}
	return kindInternal.because("the engine could not answer: look up the request's ID in its log")
}

func problemOfFailure(err *failure.Error) *problemError {
	switch err.Kind {
	case failure.NotFound:
		return kindNotFound.because("%s", err.Message)
	case failure.Conflict, failure.Claimed, failure.ClaimLost:
		return kindConflict.because("%s", err.Message)
	case failure.Refused, failure.WorkloadFailed:
		return kindRefused.because("%s", err.Message)
	case failure.Unreachable, failure.Forbidden, failure.NotReady:
		return kindUnreachable.because("%s", err.Message)
	}
	return kindInternal.because("%s", err.Message)
}

func problemOfEcho(err *echo.HTTPError) *problemError {
	switch err.Code {
	case http.StatusNotFound:
		return kindNotFound.because("this address does not exist: /docs lists all that do")
	case http.StatusMethodNotAllowed:
		return kindMethod.because("this address does not take that method: see the header Allow, or /docs")
	}
	text, ok := err.Message.(string)
	if !ok {
		text = http.StatusText(err.Code)
	}
	return kindOfStatus(err.Code).because("%s", text)
}

// temporalAway says whether the error means that Temporal did not answer, so that nothing is known.
func temporalAway(err error) bool {
	var unavailable *serviceerror.Unavailable
	var deadline *serviceerror.DeadlineExceeded
	var exhausted *serviceerror.ResourceExhausted
	var canceled *serviceerror.Canceled
	return errors.As(err, &unavailable) || errors.As(err, &deadline) || errors.As(err, &exhausted) || errors.As(err, &canceled) ||
		errors.Is(err, context.DeadlineExceeded)
}

// isFailure says whether the error is a failure of that kind.
func isFailure(err error, kind failure.Kind) bool {
	var typed *failure.Error
	return errors.As(err, &typed) && typed.Kind == kind
}
