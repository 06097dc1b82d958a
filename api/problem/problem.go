// Package problem turns every error into an RFC 9457 problem.
package problem

import (
	"errors"
	"fmt"
	"net/http"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/strictyaml"
)

// MalformedBody refuses a body with everything that is wrong with it.
func MalformedBody(errors strictyaml.Errors) error { return WrongDocument("the body", errors) }

// WrongDocument refuses a document with everything that is wrong with it.
func WrongDocument(what string, wrong strictyaml.Errors) error {
	problems := Fields(wrong)
	return Malformed.Because("%s is not as it should be: %s", what, Summary(problems)).Listing(problems)
}

// IsGone says whether what was asked for does not exist, or not any more.
func IsGone(err error) bool {
	var answer *Error
	return failure.Is(err, failure.NotFound) || errors.As(err, &answer) && answer.Status == NotFound.Status
}

// RefusedIsMalformed is for a document that the home cluster itself refuses: the sender has to change it.
func RefusedIsMalformed(err error) error {
	if failure.Is(err, failure.Refused) {
		return Malformed.Because("%v", err)
	}
	return err
}

// Kind is one kind of error as clients tell them apart: its name is the end of the problem's type.
type Kind struct {
	Name   string
	Status int
	Title  string
	Advice string
}

// The kinds of problems: a status, a title, and what to do.
var (
	Malformed       = Kind{"malformed", http.StatusBadRequest, "The request is malformed", "Correct what `errors` lists and send it again."}
	Unauthenticated = Kind{"unauthenticated", http.StatusUnauthorized, "The request shows no credentials, or wrong ones",
		"Send the token in `Authorization: Bearer TOKEN`, or show a client certificate; `detail` says which."}
	CrossSite = Kind{"cross-site", http.StatusForbidden, "The request comes from another site",
		"Send it from a program, or from a page that this engine serves."}
	UnknownHost = Kind{"unknown-host", http.StatusForbidden, "The request is addressed to an unknown host",
		"Use an address of the engine, or add the name to its setting `allowed-hosts`."}
	NotFound         = Kind{"not-found", http.StatusNotFound, "There is no such thing", "Check the address; lists show what there is."}
	MethodNotAllowed = Kind{"method-not-allowed", http.StatusMethodNotAllowed, "The method is not allowed here",
		"The header `Allow` says which are."}
	NotAcceptable = Kind{"not-acceptable", http.StatusNotAcceptable, "The answer has no such form",
		"Ask for a form that `detail` names, or leave out `Accept`."}
	Conflict = Kind{"conflict", http.StatusConflict, "The state of things does not allow it",
		"Read `detail`; `task` and `current`, `rollout` and `holder`, or `serving`, say which release is in question and what it is like now."}
	TooLarge        = Kind{"too-large", http.StatusRequestEntityTooLarge, "The body is too large", "Split the document."}
	UnsupportedType = Kind{"unsupported-media-type", http.StatusUnsupportedMediaType, "The body is of another type",
		"Set `Content-Type` to one that `detail` names."}
	Refused = Kind{"refused", http.StatusUnprocessableEntity, "The request cannot be carried out",
		"Nothing was changed. Correct what `errors` lists and send it again."}
	TooManyStreams = Kind{"too-many-streams", http.StatusTooManyRequests, "Too many event streams are open",
		"Repeat it when others have ended, or read the object itself."}
	Internal = Kind{"internal", http.StatusInternalServerError, "Something went wrong in the engine",
		"The engine's log says more under the request's ID."}
	Unreachable = Kind{"unreachable", http.StatusServiceUnavailable, "Something that is needed cannot be reached",
		"Repeat it when it is back; with the same key nothing is done twice."}
	Limited = Kind{"limited", http.StatusServiceUnavailable, "Temporal is asked too much just now",
		"Repeat it after `Retry-After`; with the same key nothing is done twice. If it comes often, raise the limit of the Temporal namespace that `detail` names."}
)

// Kinds are all kinds, as the documentation lists them.
func Kinds() []Kind {
	return []Kind{Malformed, Unauthenticated, CrossSite, UnknownHost, NotFound, MethodNotAllowed, NotAcceptable, Conflict, TooLarge,
		UnsupportedType, Refused, TooManyStreams, Internal, Unreachable, Limited}
}

// OfStatus is the kind of problem that has this status.
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

// Error is an error that already is its answer.
type Error struct {
	schema.Problem
}

func (p *Error) Error() string { return p.Detail }

// Type is what tells a problem of this kind: the address of its explanation.
func (k Kind) Type() string { return "/docs#problem-" + k.Name }

// Because makes the problem of this kind whose detail says what happened and what to do next.
func (k Kind) Because(format string, args ...any) *Error {
	return &Error{schema.Problem{Type: k.Type(), Title: k.Title, Status: k.Status, Detail: fmt.Sprintf(format, args...)}}
}

// Listing adds everything that is wrong.
func (p *Error) Listing(errors []schema.FieldProblem) *Error {
	p.Errors = errors
	return p
}

// About names the task that is in the way, and shows it when it is at hand.
func (p *Error) About(id string, current *plan.Task) *Error {
	p.Task, p.Current = id, current
	return p
}

// Showing shows the rollout in question as it is now.
func (p *Error) Showing(current rollout.Status) *Error {
	p.Rollout = &current
	return p
}

// HeldBy names the workflow of the release that is in the way.
func (p *Error) HeldBy(workflowID string) *Error {
	p.Holder = workflowID
	return p
}

// Fields are a document's errors or warnings as they are answered: an empty list is one.
func Fields(errors strictyaml.Errors) []schema.FieldProblem {
	return append([]schema.FieldProblem{}, errors...)
}

// Summary is the first thing that is wrong, and how many more there are, for people who see the problem's detail only.
func Summary(problems []schema.FieldProblem) string {
	text := problems[0].Error()
	if more := len(problems) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// BadQuery says what is wrong with a query.
func BadQuery(problems ...schema.FieldProblem) error {
	return Malformed.Because("the query is not as it should be: %s", Summary(problems)).Listing(problems)
}

// BadField refuses a body for one of its fields.
func BadField(field, reason string) error {
	problem := schema.FieldProblem{Field: field, Reason: reason}
	return Malformed.Because("the body is not as it should be: %s",
		Summary([]schema.FieldProblem{problem})).Listing([]schema.FieldProblem{problem})
}
