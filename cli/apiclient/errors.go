package apiclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/strictyaml"
)

// ProblemError is what the API says went wrong.
type ProblemError struct {
	client.Problem
	// Findings are the errors with the files that they stand in, where the command knows these.
	Findings []Finding
}

// withoutFirst leaves out of the detail the first of the errors, which the detail repeats for people who see nothing else.
func withoutFirst(detail string, errors []client.FieldProblem) string {
	if len(errors) == 0 {
		return detail
	}
	before, _, _ := strings.Cut(detail, ": "+errors[0].Error())
	return before
}

func (e *ProblemError) Error() string { return render.OneLine(namingCommands(e.Detail)) }

// UnreachableError says that the API does not answer.
type UnreachableError struct {
	Address string
	Cause   error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("the Slipway API at %s does not answer: %s", e.Address, PlainCause(e.Cause))
}

func (e *UnreachableError) Unwrap() error { return e.Cause }

// strangerError: something answers at the API's address that does not speak as the API does.
type strangerError struct {
	address, status, contentType string
}

func strangerAt(address string, response *http.Response) *strangerError {
	return &strangerError{address: address, status: response.Status, contentType: response.Header.Get("Content-Type")}
}

func (e *strangerError) Error() string {
	return fmt.Sprintf("%s answered %s (%s), which is no answer of the Slipway API", e.address, e.status, render.OrDash(e.contentType))
}

// PlainCause leaves of a network error what a person can use.
func PlainCause(err error) string {
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

// Finding is one thing that is wrong with a document.
type Finding struct {
	File  string
	Wrong strictyaml.FieldError
}

// String reads "shop.yaml:6: item 2, deployment: must be …"; a document of no file begins with the item.
func (f Finding) String() string {
	at := f.Wrong
	place := ""
	if f.File != "" {
		place = f.File + ": "
		if at.Line > 0 {
			place = fmt.Sprintf("%s:%d: ", f.File, at.Line)
		}
		at.Line = 0
	}
	if at.Item == 0 && at.Line == 0 && at.Field == "" {
		return place + render.OneLine(at.Reason)
	}
	return place + render.OneLine(at.Where()) + ": " + render.OneLine(at.Reason)
}

// FindingsOf are the API's findings on a document of that file; file is empty when there was none.
func FindingsOf(file string, problems []client.FieldProblem) []Finding {
	var all []Finding
	for _, p := range problems {
		p.Reason = namingCommands(p.Reason)
		all = append(all, Finding{File: file, Wrong: p})
	}
	return all
}

// ProblemsOf are findings of our own in the form of the API's: an empty list is one.
func ProblemsOf(found []strictyaml.FieldError) []client.FieldProblem {
	return append([]client.FieldProblem{}, found...)
}

// MostFindings is how many findings on one document are printed where they come beside something else; -o json prints all.
const MostFindings = 20

// FindingLines are the findings, one on a line with the prefix. Beyond the most, when that is not 0, they are counted only.
func FindingLines(prefix string, findings []Finding, most int) string {
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

// Explain is an error as it is printed: what happened, what is wrong, of that so many lines at most, and what to do.
func Explain(err error, most int) string {
	var text strings.Builder
	var problem *ProblemError
	var unreachable *UnreachableError
	var stranger *strangerError
	var refused *KusciaError
	var untrusted *tls.CertificateVerificationError
	fmt.Fprintf(&text, "error: %s\n", err)
	switch {
	case errors.As(err, &problem):
		findings := problem.Findings
		if findings == nil {
			findings = FindingsOf("", problem.Errors)
		}
		text.WriteString(FindingLines("  ", findings, most))
		if problem.Current != nil {
			fmt.Fprintf(&text, "The task is %s now: %s\n", problem.Current.State, render.OneLine(problem.Current.Reason))
		}
		if problem.Rollout != nil {
			fmt.Fprintf(&text, "The rollout is %s now: %s\n", problem.Rollout.Phase, render.OneLine(problem.Rollout.Reason))
		}
		if problem.Serving != nil {
			fmt.Fprintf(&text, "The serving is %s now%s\n", problem.Serving.Phase,
				render.Because(render.ReasonAndMessage(problem.Serving.Reason, render.OneLine(problem.Serving.Message))))
		}
		if problem.Holder != "" {
			fmt.Fprintf(&text, "In the way: %s\n", render.OneLine(problem.Holder))
		}
		text.WriteString(accessHint(problem))
		if problem.Status >= 500 && problem.RequestID != "" {
			fmt.Fprintf(&text, "The engine's log has more, under request %s.\n", problem.RequestID)
		}
	case errors.As(err, &refused) && refused.hint != "":
		text.WriteString(refused.hint + "\n")
	case errors.As(err, &untrusted):
		text.WriteString("Name the CA of the engine's certificate with --api-ca-file or SLIPWAY_API_CA_FILE.\n")
	case errors.As(err, &unreachable):
		text.WriteString("Start it with `slipway dev` or `slipway server`, or name another address with --api or SLIPWAY_API.\n")
	case errors.As(err, &stranger):
		text.WriteString("Something else may listen there: check --api or SLIPWAY_API.\n")
	}
	return text.String()
}

// accessHint says what to do about an engine that doesn't let the caller in.
func accessHint(problem *ProblemError) string {
	switch problem.Status {
	case http.StatusUnauthorized:
		return "Name the file of the engine's token with --api-token-file or SLIPWAY_API_TOKEN_FILE, a client certificate with --api-cert-file " +
			"and --api-key-file.\n"
	case http.StatusForbidden:
		return "Name another address of the engine with --api or SLIPWAY_API, or add the name in it to the engine's --allowed-hosts.\n"
	}
	return ""
}

// neverSent says whether the connection failed before anything could be sent.
func (e *UnreachableError) neverSent() bool {
	var operation *net.OpError
	return errors.As(e.Cause, &operation) && operation.Op == "dial"
}

// httpCall is a request as the API's messages name it: "POST /api/v1/tasks/shop-1/stop".
var httpCall = regexp.MustCompile(`\b(GET|PUT|POST|DELETE) /api/v1/([a-z]+)((?:/[^\s/?)\]",;:]+)*)(\?party=([^\s&)\]",;]+))?`)

// commandNouns are the commands for the collections of the API. The names in those of namespaces have two parts.
var commandNouns = map[string]struct {
	noun  string
	parts int
}{
	"services": {"service", 1}, "plans": {"plan", 1}, "tasks": {"task", 1}, "servings": {"serving", 1}, "parties": {"party", 1},
	"rollouts": {"rollout", 2}, "trafficroutings": {"trafficrouting", 2},
}

// namingCommands puts the commands that people type here in the place of the HTTP requests that a message names.
func namingCommands(text string) string {
	text = httpCall.ReplaceAllStringFunc(text, func(call string) string {
		match := httpCall.FindStringSubmatch(call)
		method, what, known := match[1], commandNouns[match[2]], commandNouns[match[2]].noun != ""
		if !known {
			return call
		}
		parts := strings.FieldsFunc(match[3], func(r rune) bool { return r == '/' })
		name := strings.Join(parts[:min(len(parts), what.parts)], "/")
		if plain, err := url.PathUnescape(name); err == nil {
			name = plain
		}
		if match[5] != "" {
			name += " --party " + match[5]
		}
		verb := "list"
		switch {
		case len(parts) > what.parts:
			verb = parts[what.parts]
		case method == "PUT":
			verb, name = "apply", "-f FILE"
		case method == "POST":
			verb = "start"
		case method == "DELETE":
			verb = "delete"
		case name != "":
			verb = "get"
		}
		if verb == "execute" {
			verb = "run"
		}
		return strings.TrimSpace("slipway " + what.noun + " " + verb + " " + name)
	})
	return strings.ReplaceAll(text, "supersede: true", "--supersede")
}
