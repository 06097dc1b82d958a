package apiclient

import (
	"cmp"
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

// ProblemError is an error that the API returned (application/problem+json).
type ProblemError struct {
	client.Problem
	// Findings are the errors with file names, if the command knows the files.
	Findings []Finding
}

// withoutFirstError removes the first error from the detail. The API repeats it there for clients that show only the
// detail.
func withoutFirstError(detail string, errors []client.FieldProblem) string {
	if len(errors) == 0 {
		return detail
	}
	before, _, _ := strings.Cut(detail, ": "+errors[0].Error())
	return before
}

func (e *ProblemError) Error() string { return render.OneLine(replaceCallsByCommands(e.Detail)) }

// UnreachableError means that the API did not respond.
type UnreachableError struct {
	Address string
	Cause   error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("the Slipway API at %s does not respond: %s", e.Address, ShortCause(e.Cause))
}

func (e *UnreachableError) Unwrap() error { return e.Cause }

// unexpectedResponseError means that a server at the API's address sent a response that is not the API's.
type unexpectedResponseError string

func newUnexpectedResponse(address string, response *http.Response) error {
	return unexpectedResponseError(fmt.Sprintf("%s returned %s (%s), which is not a response of the Slipway API", address,
		response.Status, cmp.Or(response.Header.Get("Content-Type"), "-")))
}

func (e unexpectedResponseError) Error() string { return string(e) }

// ShortCause shortens a network error to the part that is useful to a user.
func ShortCause(err error) string {
	var dns *net.DNSError
	var operation *net.OpError
	switch {
	case errors.As(err, &dns):
		return fmt.Sprintf("no such host: %s", dns.Name)
	case errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err):
		return "timed out"
	case errors.As(err, &operation):
		parts := strings.Split(operation.Err.Error(), ": ")
		return parts[len(parts)-1]
	}
	return err.Error()
}

// Finding is one error or warning in a document.
type Finding struct {
	File    string
	Problem strictyaml.FieldError
}

// String returns, for example, "shop.yaml:6: item 2, deployment: must be …". Without a file it begins with the item.
func (f Finding) String() string {
	at := f.Problem
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

// FindingsOf converts the API's errors for a document. file is empty if the document was not read from a file.
func FindingsOf(file string, problems []client.FieldProblem) []Finding {
	var all []Finding
	for _, p := range problems {
		p.Reason = replaceCallsByCommands(p.Reason)
		all = append(all, Finding{File: file, Problem: p})
	}
	return all
}

// MaxFindings bounds the findings per document in text output; -o json prints all.
const MaxFindings = 20

// FindingLines prints one finding per line, each with the prefix. If most is not 0, it prints at most that many, and
// counts the others.
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

// Explain formats an error for the terminal: the error, at most the given number of findings, and what to do next.
func Explain(err error, most int) string {
	var text strings.Builder
	var problem *ProblemError
	var unreachable *UnreachableError
	var stranger unexpectedResponseError
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
			fmt.Fprintf(&text, "The task is %s now: %s\n", problem.Current.State,
				render.OneLine(problem.Current.Reason))
		}
		if problem.Rollout != nil {
			fmt.Fprintf(&text, "The rollout is %s now: %s\n", problem.Rollout.Phase,
				render.OneLine(problem.Rollout.Reason))
		}
		if problem.Serving != nil {
			fmt.Fprintf(&text, "The serving is %s now%s\n", problem.Serving.Phase, render.ReasonSuffix(
				render.ReasonAndMessage(problem.Serving.Reason, render.OneLine(problem.Serving.Message))))
		}
		if problem.Holder != "" {
			fmt.Fprintf(&text, "Blocked by: %s\n", render.OneLine(problem.Holder))
		}
		text.WriteString(accessHints[problem.Status])
		if problem.Status >= 500 && problem.RequestID != "" {
			fmt.Fprintf(&text, "For details, search the engine's log for request %s.\n", problem.RequestID)
		}
	case errors.As(err, &untrusted):
		text.WriteString("Set the CA of the engine's certificate with --api-ca-file or SLIPWAY_API_CA_FILE.\n")
	case errors.As(err, &unreachable):
		text.WriteString("Start the engine with `slipway dev` or `slipway server`, or set another address with --api " +
			"or SLIPWAY_API.\n")
	case errors.As(err, &stranger):
		text.WriteString("Another server may be listening there: check --api or SLIPWAY_API.\n")
	}
	return text.String()
}

// accessHints say what to do if the engine rejected the caller or its Host header.
var accessHints = map[int]string{
	http.StatusUnauthorized: "Set the engine's token with --api-token-file or SLIPWAY_API_TOKEN_FILE, or a client " +
		"certificate with --api-cert-file and --api-key-file.\n",
	http.StatusForbidden: "Use another address of the engine with --api or SLIPWAY_API, or add this address's host name " +
		"to the engine's --allowed-hosts.\n",
}

// neverSent reports whether the connection failed before the request was sent.
func (e *UnreachableError) neverSent() bool {
	var operation *net.OpError
	return errors.As(e.Cause, &operation) && operation.Op == "dial"
}

// httpCall matches a request in a message of the API, such as "POST /api/v1/tasks/shop-1/stop".
var httpCall = regexp.MustCompile(
	`\b(GET|PUT|POST|DELETE) /api/v1/([a-z]+)((?:/[^\s/?)\]",;:]+)*)(\?party=([^\s&)\]",;]+))?`)

// commandNouns maps collections of the API to commands. Names of namespaced objects have two parts.
var commandNouns = map[string]struct {
	noun  string
	parts int
}{
	"services": {"service", 1}, "plans": {"plan", 1}, "tasks": {"task", 1}, "servings": {"serving", 1},
	"parties": {"party", 1}, "appimages": {"appimage", 1},
	"rollouts": {"rollout", 2}, "trafficroutings": {"trafficrouting", 2},
}

// replaceCallsByCommands replaces HTTP requests in a message of the API by the equivalent slipway commands.
func replaceCallsByCommands(text string) string {
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
