package problem

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
	"go.temporal.io/api/serviceerror"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/failure"
)

// Of converts any error to a problem.
func Of(err error) *Error {
	var ready *Error
	if errors.As(err, &ready) {
		return ready
	}
	var refusal *auth.Refusal
	if errors.As(err, &refusal) {
		return ofRefusal(refusal)
	}
	var typed *failure.Error
	if errors.As(err, &typed) {
		return ofFailure(typed)
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return TooLarge.Because("the body is larger than %d MiB: split the document", tooLarge.Limit>>20)
	}
	var web *echo.HTTPError
	if errors.As(err, &web) {
		return ofEcho(web)
	}
	var limited *serviceerror.ResourceExhausted
	if errors.As(err, &limited) {
		return Limited.Because("Temporal's rate limit is exceeded (%v): repeat the request in a second", err)
	}
	var denied *serviceerror.PermissionDenied
	if errors.As(err, &denied) || status.Code(err) == codes.Unauthenticated {
		return Unreachable.Because("Temporal rejects the engine's credentials: repeat the request when /readyz is " +
			"ready again; see the engine's log")
	}
	var stuck *serviceerror.WorkflowNotReady
	if errors.As(err, &stuck) {
		return Unreachable.Because("no worker of the engine can currently process the workflow (%v): repeat the "+
			"request; see the workers' log", err)
	}
	if TemporalUnavailable(err) {
		return Unreachable.Because("Temporal does not answer (%v): repeat the request when it is back", err)
	}
	return Internal.Because("the engine could not answer: look up the request's ID in its log")
}

func ofRefusal(err *auth.Refusal) *Error {
	switch err.Reason {
	case auth.UnknownHost:
		return UnknownHost.Because("%v", err)
	case auth.CrossOrigin:
		return CrossSite.Because("%v", err)
	}
	return Unauthenticated.Because("%v", err)
}

func ofFailure(err *failure.Error) *Error {
	switch err.Kind {
	case failure.NotFound:
		return NotFound.Because("%s", err.Message)
	case failure.Conflict, failure.Claimed, failure.ClaimLost:
		return Conflict.Because("%s", err.Message)
	case failure.Refused, failure.WorkloadFailed:
		return Refused.Because("%s", err.Message)
	case failure.Unreachable, failure.Forbidden, failure.NotReady:
		return Unreachable.Because("%s", err.Message)
	}
	return Internal.Because("%s", err.Message)
}

func ofEcho(err *echo.HTTPError) *Error {
	switch err.Code {
	case http.StatusNotFound:
		return NotFound.Because("this address does not exist: /docs lists all that do")
	case http.StatusMethodNotAllowed:
		return MethodNotAllowed.Because("this address does not support that method: see the header Allow, or /docs")
	}
	text, ok := err.Message.(string)
	if !ok {
		text = http.StatusText(err.Code)
	}
	if name, cause, found := strings.Cut(strings.TrimPrefix(text, wrongParameter), ": "); found &&
		strings.HasPrefix(text, wrongParameter) {
		return badParameter(name, cause)
	}
	return OfStatus(err.Code).Because("%s", text)
}

// wrongParameter is the prefix of the generated server's error for a parameter that it cannot parse.
const wrongParameter = "Invalid format for parameter "

// LimitRule is the reason for rejecting the query parameter limit.
const LimitRule = "must be a whole number from 1 to 500"

// badParameter replaces the message of Go's parser by what is legal.
func badParameter(name, cause string) *Error {
	reason := "cannot be read: " + cause
	switch {
	case name == "limit":
		reason = LimitRule
	case strings.Contains(cause, "strconv.Parse"):
		reason = "must be a whole number"
	}
	problems := []schema.FieldProblem{{Field: name, Reason: reason}}
	return Malformed.Because("the query is invalid: %s", Summary(problems)).Listing(problems)
}

// TemporalUnavailable reports whether the error means that Temporal did not answer, so that the outcome is unknown.
func TemporalUnavailable(err error) bool {
	var unavailable *serviceerror.Unavailable
	var deadline *serviceerror.DeadlineExceeded
	var exhausted *serviceerror.ResourceExhausted
	var canceled *serviceerror.Canceled
	return errors.As(err, &unavailable) || errors.As(err, &deadline) || errors.As(err, &exhausted) ||
		errors.As(err, &canceled) ||
		errors.Is(err, context.DeadlineExceeded)
}
