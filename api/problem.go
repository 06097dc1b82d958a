package api

import (
	"fmt"
	"net/http"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/strictyaml"
)

// problemKind is one kind of error as clients tell them apart: its name is the end of the problem's type.
type problemKind struct {
	name   string
	status int
	title  string
	advice string
}

var (
	kindMalformed   = problemKind{"malformed", http.StatusBadRequest, "The request is malformed", "Correct what `errors` lists and send it again."}
	kindForbidden   = problemKind{"cross-site", http.StatusForbidden, "The request comes from another site", "Send it from a program, or from a page that this engine serves."}
	kindNotFound    = problemKind{"not-found", http.StatusNotFound, "There is no such thing", "Check the address; lists show what there is."}
	kindMethod      = problemKind{"method-not-allowed", http.StatusMethodNotAllowed, "The method is not allowed here", "The header `Allow` says which are."}
	kindAccept      = problemKind{"not-acceptable", http.StatusNotAcceptable, "The answer has no such form", "Ask for a form that `detail` names, or leave out `Accept`."}
	kindConflict    = problemKind{"conflict", http.StatusConflict, "The state of things does not allow it", "Read `detail`; `task` and `current`, `rollout` and `holder`, or `serving`, say which release is in question and what it is like now."}
	kindTooLarge    = problemKind{"too-large", http.StatusRequestEntityTooLarge, "The body is too large", "Split the document."}
	kindContentType = problemKind{"unsupported-media-type", http.StatusUnsupportedMediaType, "The body is of another type", "Set `Content-Type` to one that `detail` names."}
	kindRefused     = problemKind{"refused", http.StatusUnprocessableEntity, "The request cannot be carried out", "Nothing was changed. Correct what `errors` lists and send it again."}
	kindInternal    = problemKind{"internal", http.StatusInternalServerError, "Something went wrong in the engine", "The engine's log says more under the request's ID."}
	kindUnreachable = problemKind{"unreachable", http.StatusServiceUnavailable, "Something that is needed cannot be reached", "Repeat it when it is back; with the same key nothing is done twice."}
)

// problemKinds are all kinds, as the documentation lists them.
func problemKinds() []problemKind {
	return []problemKind{kindMalformed, kindForbidden, kindNotFound, kindMethod, kindAccept, kindConflict, kindTooLarge, kindContentType,
		kindRefused, kindInternal, kindUnreachable}
}

func kindOfStatus(status int) problemKind {
	for _, kind := range problemKinds() {
		if kind.status == status {
			return kind
		}
	}
	if status < http.StatusInternalServerError {
		return kindMalformed
	}
	return kindInternal
}

// problemError is an error that already is its answer.
type problemError struct {
	Problem
}

func (p *problemError) Error() string { return p.Detail }

// because makes the problem of this kind whose detail says what happened and what to do next.
func (k problemKind) because(format string, args ...any) *problemError {
	return &problemError{Problem{Type: "/docs#problem-" + k.name, Title: k.title, Status: k.status, Detail: fmt.Sprintf(format, args...)}}
}

// listing adds everything that is wrong.
func (p *problemError) listing(errors []FieldProblem) *problemError {
	p.Errors = errors
	return p
}

// about names the task that is in the way, and shows it when it is at hand.
func (p *problemError) about(id string, current *plan.Task) *problemError {
	p.Task, p.Current = id, current
	return p
}

// showing shows the rollout in question as it is now.
func (p *problemError) showing(current rollout.Status) *problemError {
	p.Rollout = &current
	return p
}

// heldBy names the workflow of the release that is in the way.
func (p *problemError) heldBy(workflowID string) *problemError {
	p.Holder = workflowID
	return p
}

// fieldProblems are a document's errors as they are answered.
func fieldProblems(errors strictyaml.Errors) []FieldProblem {
	problems := make([]FieldProblem, len(errors))
	for i, e := range errors {
		problems[i] = FieldProblem{Field: e.Field, Reason: e.Reason, Item: e.Item, Line: e.Line}
	}
	return problems
}

func warningProblems(warnings []plan.Warning) []FieldProblem {
	problems := make([]FieldProblem, len(warnings))
	for i, w := range warnings {
		problems[i] = FieldProblem{Field: w.Field, Reason: w.Reason, Item: w.Item, Line: w.Line}
	}
	return problems
}

// summary is the first thing that is wrong, and how many more there are, for people who see the problem's detail only.
func summary(problems []FieldProblem) string {
	first := problems[0]
	text := strictyaml.FieldError{Item: first.Item, Field: first.Field, Line: first.Line, Reason: first.Reason}.Error()
	if more := len(problems) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// badQuery says what is wrong with a query.
func badQuery(problems ...FieldProblem) error {
	return kindMalformed.because("the query is not as it should be: %s", summary(problems)).listing(problems)
}
