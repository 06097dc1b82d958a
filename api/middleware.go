package api

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/strictyaml"
)

var legalRequestID = regexp.MustCompile(`^[-_.:A-Za-z0-9]{1,128}$`)

// identify gives each request an ID, its caller's own where it has one, and answers it.
func identify(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		id := c.Request().Header.Get(echo.HeaderXRequestID)
		if !legalRequestID.MatchString(id) {
			id = strings.ToLower(rand.Text())
		}
		c.Response().Header().Set(echo.HeaderXRequestID, id)
		return next(c)
	}
}

func requestID(c echo.Context) string { return c.Response().Header().Get(echo.HeaderXRequestID) }

// probes are asked every few seconds by machines: their log lines would bury the others.
var probes = []string{"/healthz", "/readyz", "/metrics"}

// logged writes one line for each request when it is over.
func (h *handlers) logged(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		began := time.Now()
		err := next(c)
		if err != nil {
			c.Error(err)
		}
		level := slog.LevelInfo
		if slices.Contains(probes, c.Path()) {
			level = slog.LevelDebug
		}
		h.Log.Log(c.Request().Context(), level, "request", "request", requestID(c), "method", c.Request().Method, "path", c.Request().URL.Path,
			"status", c.Response().Status, "bytes", c.Response().Size, "took", time.Since(began).Round(time.Microsecond), "from", c.RealIP())
		return nil
	}
}

// forgetful lets nobody who has changed something get an answer of before.
func (h *handlers) forgetful(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if c.Request().Method != http.MethodGet && c.Request().Method != http.MethodHead {
			c.Response().Before(h.Recent.Forget) // what is done is done when it is answered
		}
		return next(c)
	}
}

// recovered turns a panic into an answer; the rest of the engine goes on.
func (h *handlers) recovered(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			if value := recover(); value != nil {
				if abort, ok := value.(error); ok && errors.Is(abort, http.ErrAbortHandler) {
					panic(value) // that is how a handler asks net/http to cut the connection
				}
				h.Log.Error("panic in a handler", "request", requestID(c), "panic", value, "stack", string(debug.Stack()))
				err = fmt.Errorf("panic: %v", value)
			}
		}()
		return next(c)
	}
}

// guarded refuses what the guard does, whatever the address. Credentials are asked for everywhere but where the description leaves an
// operation open, so that a route that it doesn't know is closed.
func guarded(guard auth.Guard, spec *openapi3.T) echo.MiddlewareFunc {
	open := openOperations(spec)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if err := guard.Admit(c.Request()); err != nil {
				return err
			}
			if open[c.Request().Method+" "+c.Path()] {
				return next(c)
			}
			if err := guard.Authenticate(c.Request()); err != nil {
				c.Response().Header().Set(echo.HeaderWWWAuthenticate, `Bearer realm="slipway"`)
				return err
			}
			return next(c)
		}
	}
}

// openOperations are those that the description asks for no credentials, as "METHOD /path/of/:echo".
func openOperations(spec *openapi3.T) map[string]bool {
	open := map[string]bool{}
	for path, item := range spec.Paths.Map() {
		for method, operation := range item.Operations() {
			if servedHere(operation) && operation.Security != nil && len(*operation.Security) == 0 {
				open[method+" "+echoPath(path)] = true
			}
		}
	}
	return open
}

// servedHere says whether an operation is the engine's. The store of packages has a listener of its own, mostly in a process of its own.
func servedHere(operation *openapi3.Operation) bool {
	return !slices.Contains(operation.Tags, "packages")
}

// knownQuery refuses query parameters that the operation does not have, and repeats of one that has a single value: they would be ignored.
func knownQuery(spec *openapi3.T) echo.MiddlewareFunc {
	known := queryParameters(spec)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			var problems []schema.FieldProblem
			parameters := known[c.Request().Method+" "+c.Path()]
			for name, values := range c.QueryParams() {
				repeatable, exists := parameters[name]
				switch {
				case !exists:
					problems = append(problems, schema.FieldProblem{Field: name,
						Reason: "is not a query parameter of this address" + didYouMean(name, parameters)})
				case len(values) > 1 && !repeatable:
					problems = append(problems, schema.FieldProblem{Field: name, Reason: "is given more than once"})
				}
			}
			if len(problems) > 0 && parameters != nil {
				slices.SortFunc(problems, func(a, b schema.FieldProblem) int { return strings.Compare(a.Field, b.Field) })
				return problem.BadQuery(problems...)
			}
			return next(c)
		}
	}
}

func didYouMean(name string, parameters map[string]bool) string {
	var names []string
	for known := range parameters {
		names = append(names, known)
	}
	slices.Sort(names)
	return strictyaml.DidYouMean(name, names)
}

// queryParameters are the query parameters of each operation, by "METHOD /path/of/:echo"; the value says whether it may be repeated.
func queryParameters(spec *openapi3.T) map[string]map[string]bool {
	known := map[string]map[string]bool{}
	for path, item := range spec.Paths.Map() {
		for method, operation := range item.Operations() {
			names := map[string]bool{}
			for _, parameter := range slices.Concat(item.Parameters, operation.Parameters) {
				if parameter.Value.In == openapi3.ParameterInQuery {
					names[parameter.Value.Name] = parameter.Value.Schema.Value.Type.Is(openapi3.TypeArray)
				}
			}
			known[method+" "+echoPath(path)] = names
		}
	}
	return known
}

var pathParameter = regexp.MustCompile(`\{([^}]+)\}`)

func echoPath(path string) string { return pathParameter.ReplaceAllString(path, ":$1") }

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
	if answer.Type == problem.Limited.Type() {
		c.Response().Header().Set(echo.HeaderRetryAfter, "1")
	}
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
