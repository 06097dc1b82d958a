// Package problem converts errors to RFC 9457 problems.
package problem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
	"go.temporal.io/api/serviceerror"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/strictyaml"
)

// InvalidDocument rejects a document, with all its errors.
func InvalidDocument(what string, wrong strictyaml.Errors) *Error {
	return Malformed.Listing(wrong, "%s is invalid", what)
}

// IsNotFound reports whether the requested object does not exist, or no longer exists.
func IsNotFound(err error) bool {
	answer, is := errors.AsType[*Error](err)
	return failure.Is(err, failure.NotFound) || is && answer.Status == NotFound.Status
}

// RefusedIsMalformed converts a refusal of a document by the home cluster to Malformed: the client has to change the
// document.
func RefusedIsMalformed(err error) error {
	if failure.Is(err, failure.Refused) {
		return Malformed.Because("%v", err)
	}
	return err
}

// Kind is one kind of problem; its name is the end of the problem's type.
type Kind struct {
	Name   string
	Status int
	Title  string
	Advice string
}

// The kinds of problems: a status, a title, and what to do.
var (
	Malformed = Kind{"malformed", http.StatusBadRequest, "The request is malformed",
		"Correct what `errors` lists and send it again."}
	Unauthenticated = Kind{"unauthenticated", http.StatusUnauthorized, "The request has missing or wrong credentials",
		"Send the token in `Authorization: Bearer TOKEN`, or use a client certificate; `detail` says which."}
	CrossSite = Kind{"cross-site", http.StatusForbidden, "The request comes from another site",
		"Send it from a program, or from a page that this engine serves."}
	UnknownHost = Kind{"unknown-host", http.StatusForbidden, "The request is addressed to an unknown host",
		"Use an address of the engine, or add the name to its setting `allowed-hosts`."}
	NotFound = Kind{"not-found", http.StatusNotFound, "Not found",
		"Check the address; lists show the existing objects."}
	MethodNotAllowed = Kind{"method-not-allowed", http.StatusMethodNotAllowed, "The method is not allowed here",
		"The header `Allow` lists the allowed methods."}
	NotAcceptable = Kind{"not-acceptable", http.StatusNotAcceptable, "The requested media type is not available",
		"Accept a media type that `detail` names, or leave out `Accept`."}
	Conflict = Kind{"conflict", http.StatusConflict, "The current state does not allow it",
		"Read `detail`; `task` and `current`, `rollout` and `holder`, or `serving`, name the release in question and " +
			"show its current state."}
	TooLarge = Kind{"too-large", http.StatusRequestEntityTooLarge, "The body is too large",
		"Split the document."}
	UnsupportedType = Kind{"unsupported-media-type", http.StatusUnsupportedMediaType,
		"The media type of the body is not supported", "Set `Content-Type` to one that `detail` names."}
	Refused = Kind{"refused", http.StatusUnprocessableEntity, "The request cannot be carried out",
		"Nothing was changed. Correct what `errors` lists and send it again."}
	TooManyStreams = Kind{"too-many-streams", http.StatusTooManyRequests, "Too many event streams are open",
		"Repeat it when others have ended, or read the object itself."}
	TooManyFailures = Kind{"too-many-failures", http.StatusTooManyRequests,
		"Too many requests from this address had wrong credentials",
		"Send the right credentials, which are accepted at any time, or repeat it after `Retry-After`."}
	Internal = Kind{"internal", http.StatusInternalServerError, "Internal error of the engine",
		"Look up the request's ID in the engine's log."}
	Unreachable = Kind{"unreachable", http.StatusServiceUnavailable, "A required component cannot be reached",
		"Repeat it when it is reachable again; with the same key nothing is done twice."}
	Limited = Kind{"limited", http.StatusServiceUnavailable, "Temporal's rate limit is exceeded",
		"Repeat it after `Retry-After`; with the same key nothing is done twice. If it happens often, raise the " +
			"limit of the Temporal namespace that `detail` names."}
)

// Kinds returns all kinds, in the order of the documentation.
func Kinds() []Kind {
	return []Kind{Malformed, Unauthenticated, CrossSite, UnknownHost, NotFound, MethodNotAllowed, NotAcceptable,
		Conflict, TooLarge, UnsupportedType, Refused, TooManyStreams, TooManyFailures, Internal, Unreachable, Limited}
}

// OfStatus returns the kind of problem with this status.
func OfStatus(status int) Kind {
	for _, kind := range Kinds() {
		if kind.Status == status {
			return kind
		}
	}
	if status < http.StatusInternalServerError {
		return Malformed
	}
	return Internal
}

// Error is an error that is also the response to the client.
type Error struct {
	schema.Problem
}

func (p *Error) Error() string { return p.Detail }

// Type is the problem type: the address of its documentation.
func (k Kind) Type() string { return "/docs#problem-" + k.Name }

// Because creates a problem of this kind; its detail states what happened and what to do next.
func (k Kind) Because(format string, args ...any) *Error {
	return &Error{schema.Problem{Type: k.Type(), Title: k.Title, Status: k.Status,
		Detail: fmt.Sprintf(format, args...)}}
}

// Listing creates a problem that lists all errors found: its detail is the reason and the first of them.
func (k Kind) Listing(problems []schema.FieldProblem, format string, args ...any) *Error {
	return k.Because("%s: %s", fmt.Sprintf(format, args...), Summary(problems)).Listing(problems)
}

// Listing adds all errors found.
func (p *Error) Listing(errors []schema.FieldProblem) *Error {
	p.Errors = errors
	return p
}

// About adds the task in question, and its current state if known.
func (p *Error) About(id string, current *plan.Task) *Error {
	p.Task, p.Current = id, current
	return p
}

// Showing adds the current state of the rollout in question.
func (p *Error) Showing(current rollout.Status) *Error {
	p.Rollout = &current
	return p
}

// HeldBy adds the workflow of the conflicting release.
func (p *Error) HeldBy(workflowID string) *Error {
	p.Holder = workflowID
	return p
}

// Fields returns a document's errors or warnings for a response: an empty list, not nil, if there are none.
func Fields(errors strictyaml.Errors) []schema.FieldProblem {
	return append([]schema.FieldProblem{}, errors...)
}

// Summary returns the first error and the number of others, for clients that show only the problem's detail.
func Summary(problems []schema.FieldProblem) string {
	text := problems[0].Error()
	if more := len(problems) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// BadQuery rejects a query because of one parameter.
func BadQuery(field, reason string) *Error {
	return Malformed.Listing([]schema.FieldProblem{{Field: field, Reason: reason}}, "the query is invalid")
}

// BadField rejects a body because of one field.
func BadField(field, reason string) *Error {
	return InvalidDocument("the body", strictyaml.Errors{{Field: field, Reason: reason}})
}

// Of converts any error to a problem.
func Of(err error) *Error {
	if ready, is := errors.AsType[*Error](err); is {
		return ready
	}
	if typed, is := errors.AsType[*failure.Error](err); is {
		return ofFailure(typed)
	}
	if tooLarge, is := errors.AsType[*http.MaxBytesError](err); is {
		return TooLarge.Because("the body is larger than %d MiB: split the document", tooLarge.Limit>>20)
	}
	if web, is := errors.AsType[*echo.HTTPError](err); is {
		return ofEcho(web)
	}
	switch {
	case Has[*serviceerror.ResourceExhausted](err):
		return Limited.Because("Temporal's rate limit is exceeded (%v): repeat the request in a second", err)
	case Has[*serviceerror.PermissionDenied](err), status.Code(err) == codes.Unauthenticated:
		return Unreachable.Because("Temporal rejects the engine's credentials: repeat the request when /readyz is " +
			"ready again; see the engine's log")
	case Has[*serviceerror.WorkflowNotReady](err):
		return Unreachable.Because("no worker of the engine can currently process the workflow (%v): repeat the "+
			"request; see the workers' log", err)
	case TemporalUnavailable(err):
		return Unreachable.Because("Temporal does not answer (%v): repeat the request when it is back", err)
	}
	return Internal.Because("the engine could not answer: look up the request's ID in its log")
}

// Has reports whether an error is or wraps one of this type.
func Has[E error](err error) bool {
	_, is := errors.AsType[E](err)
	return is
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
	return BadQuery(name, reason)
}

// TemporalUnavailable reports whether the error means that Temporal did not answer, so that the outcome is unknown.
func TemporalUnavailable(err error) bool {
	return Has[*serviceerror.Unavailable](err) || Has[*serviceerror.DeadlineExceeded](err) ||
		Has[*serviceerror.ResourceExhausted](err) || Has[*serviceerror.Canceled](err) ||
		errors.Is(err, context.DeadlineExceeded)
}

// RetryAfterFailures is the header Retry-After, in seconds, of TooManyFailures.
const RetryAfterFailures = "60"

// retryAfter are the headers Retry-After, in seconds, by type of problem.
var retryAfter = map[string]string{Limited.Type(): "1", TooManyFailures.Type(): RetryAfterFailures}

// HTTPStatus returns the status of a problem's response.
func (p *Error) HTTPStatus() int { return p.Status }

// RetryAfter returns the header Retry-After of a problem, in seconds; "" for none.
func (p *Error) RetryAfter() string { return retryAfter[p.Type] }

// Handler returns the only place that turns errors into responses of the API.
func Handler(log *slog.Logger) echo.HTTPErrorHandler {
	return func(err error, c echo.Context) {
		if c.Response().Committed {
			return // an event stream has begun: its status can no longer change
		}
		if errors.Is(err, context.Canceled) && c.Request().Context().Err() != nil {
			c.Response().Status = statusClientClosedRequest // for the log only: the client has disconnected
			return
		}
		answer := Of(err).Problem
		answer.Instance, answer.RequestID = c.Request().URL.Path, RequestID(c)
		if answer.Status >= http.StatusInternalServerError {
			log.Warn("request failed", "request", answer.RequestID, "method", c.Request().Method, "path", answer.Instance,
				"status", answer.Status, "error", err)
		}
		c.Response().Header().Set(echo.HeaderContentType, "application/problem+json")
		if after, known := retryAfter[answer.Type]; known {
			c.Response().Header().Set(echo.HeaderRetryAfter, after)
		}
		c.Response().WriteHeader(answer.Status)
		if c.Request().Method == http.MethodHead {
			return
		}
		if err := json.NewEncoder(c.Response()).Encode(answer); err != nil {
			log.Debug("answer not sent", "request", answer.RequestID, "error", err)
		}
	}
}

// RequestID returns the ID of a request, which its response has in the header X-Request-ID.
func RequestID(c echo.Context) string { return c.Response().Header().Get(echo.HeaderXRequestID) }

// statusClientClosedRequest is the logged status of a request whose client disconnected (nginx's 499).
const statusClientClosedRequest = 499
