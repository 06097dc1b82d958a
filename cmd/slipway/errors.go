package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/release/strictyaml"
)

// problemError is what the API says went wrong.
type problemError struct {
	client.Problem
}

func (e *problemError) Error() string { return oneLine(e.Detail) }

// unreachableError: the API does not answer.
type unreachableError struct {
	address string
	cause   error
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf("the Slipway API at %s does not answer: %s", e.address, plainCause(e.cause))
}

func (e *unreachableError) Unwrap() error { return e.cause }

// strangerError: something answers at the API's address that does not speak as the API does.
type strangerError struct {
	address, status, contentType string
}

func (e *strangerError) Error() string {
	return fmt.Sprintf("%s answered %s (%s), which is no answer of the Slipway API", e.address, e.status, orDash(e.contentType))
}

// plainCause leaves of a network error what a person can use.
func plainCause(err error) string {
	var dns *net.DNSError
	var operation *net.OpError
	switch {
	case errors.As(err, &dns):
		return fmt.Sprintf("there is no host %s", dns.Name)
	case errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err):
		return "no answer in time"
	case errors.As(err, &operation):
		parts := strings.Split(operation.Err.Error(), ": ")
		return parts[len(parts)-1]
	}
	return err.Error()
}

// finding is one thing that is wrong with a document.
type finding struct {
	file  string
	wrong strictyaml.FieldError
}

// String reads "shop.yaml:6: item 2, deployment: must be …"; a document of no file begins with the item.
func (f finding) String() string {
	at := f.wrong
	place := ""
	if f.file != "" {
		place = f.file + ": "
		if at.Line > 0 {
			place = fmt.Sprintf("%s:%d: ", f.file, at.Line)
		}
		at.Line = 0
	}
	if at.Item == 0 && at.Line == 0 && at.Field == "" {
		return place + oneLine(at.Reason)
	}
	return place + oneLine(at.Where()) + ": " + oneLine(at.Reason)
}

// findingsOf are the API's findings on a document of that file; file is empty when there was none.
func findingsOf(file string, problems []client.FieldProblem) []finding {
	var all []finding
	for _, p := range problems {
		all = append(all, finding{file: file, wrong: strictyaml.FieldError{Item: p.Item, Field: p.Field, Line: p.Line, Reason: p.Reason}})
	}
	return all
}

// mostFindings is how many findings on one document are printed where they come beside something else; -o json prints all.
const mostFindings = 20

// findingLines are the findings, one on a line with the prefix. Beyond the most, when that is not 0, they are counted only.
func findingLines(prefix string, findings []finding, most int) string {
	shown := findings
	if most > 0 && len(findings) > most {
		shown = findings[:most]
	}
	var text strings.Builder
	for _, f := range shown {
		fmt.Fprintf(&text, "%s%s\n", prefix, f)
	}
	if rest := len(findings) - len(shown); rest > 0 {
		fmt.Fprintf(&text, "%s… and %d more (-o json prints all)\n", prefix, rest)
	}
	return text.String()
}

// explain is an error as it is printed: what happened, what is wrong, of that so many lines at most, and what to do.
func explain(err error, most int) string {
	var text strings.Builder
	var problem *problemError
	var unreachable *unreachableError
	var stranger *strangerError
	var refused *kusciaError
	fmt.Fprintf(&text, "error: %s\n", err)
	switch {
	case errors.As(err, &problem):
		text.WriteString(findingLines("  ", findingsOf("", problem.Errors), most))
		if problem.Current != nil {
			fmt.Fprintf(&text, "The task is %s now: %s\n", problem.Current.State, oneLine(problem.Current.Reason))
		}
		if problem.Rollout != nil {
			fmt.Fprintf(&text, "The rollout is %s now: %s\n", problem.Rollout.Phase, oneLine(problem.Rollout.Reason))
		}
		if problem.Serving != nil {
			fmt.Fprintf(&text, "The serving is %s now%s\n", problem.Serving.Phase, because(reasonAndMessage(problem.Serving.Reason, oneLine(problem.Serving.Message))))
		}
		if problem.Holder != "" {
			fmt.Fprintf(&text, "In the way: %s\n", oneLine(problem.Holder))
		}
		if problem.Status >= 500 && problem.RequestID != "" {
			fmt.Fprintf(&text, "The engine's log has more, under request %s.\n", problem.RequestID)
		}
	case errors.As(err, &refused) && refused.hint != "":
		text.WriteString(refused.hint + "\n")
	case errors.As(err, &unreachable):
		text.WriteString("Start it with `slipway dev` or `slipway server`, or name another address with --api or SLIPWAY_API.\n")
	case errors.As(err, &stranger):
		text.WriteString("Something else may listen there: check --api or SLIPWAY_API.\n")
	}
	return text.String()
}

// neverSent says whether the connection failed before anything could be sent.
func (e *unreachableError) neverSent() bool {
	var operation *net.OpError
	return errors.As(e.cause, &operation) && operation.Op == "dial"
}
