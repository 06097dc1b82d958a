package api

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/strictyaml"
)

var legalRequestID = regexp.MustCompile(`^[-_.:A-Za-z0-9]{1,128}$`)

// assignRequestID gives each request an ID (the caller's X-Request-ID if it is legal) and returns it in the response.
func assignRequestID(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		id := c.Request().Header.Get(echo.HeaderXRequestID)
		if !legalRequestID.MatchString(id) {
			id = strings.ToLower(rand.Text())
		}
		c.Response().Header().Set(echo.HeaderXRequestID, id)
		return next(c)
	}
}

// probes are requested every few seconds by monitoring; they are logged at debug level.
var probes = []string{"/healthz", "/readyz", "/metrics"}

// dropCacheAfterWrite empties the cache of recent answers before a write is answered, so that a client that has written
// never reads an older state.
func (h *handlers) dropCacheAfterWrite(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if c.Request().Method != http.MethodGet && c.Request().Method != http.MethodHead {
			c.Response().Before(h.Recent.Forget) // the write has happened before its answer is sent
		}
		return next(c)
	}
}

// recoverPanics turns a panic into an error response; the process continues.
func (h *handlers) recoverPanics(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			if value := recover(); value != nil {
				if abort, ok := value.(error); ok && errors.Is(abort, http.ErrAbortHandler) {
					panic(value) // handlers panic with it to make net/http close the connection
				}
				h.Log.Error("panic in a handler", "request", problem.RequestID(c), "panic", value, "stack",
					string(debug.Stack()))
				err = fmt.Errorf("panic: %v", value)
			}
		}()
		return next(c)
	}
}

// operation is what the description says of one operation.
type operation struct {
	// open means that the operation needs no credentials.
	open bool
	// query has its query parameters; the value reports whether the parameter may be repeated.
	query map[string]bool
}

var pathParameter = regexp.MustCompile(`\{([^}]+)\}`)

// operations returns the operations that the engine serves, by "METHOD /path/of/:echo". The package store has its own
// listener, usually in its own process.
func operations(spec *openapi3.T) map[string]operation {
	known := map[string]operation{}
	for path, item := range spec.Paths.Map() {
		for method, described := range item.Operations() {
			if slices.Contains(described.Tags, "packages") {
				continue
			}
			o := operation{described.Security != nil && len(*described.Security) == 0, map[string]bool{}}
			for _, parameter := range slices.Concat(item.Parameters, described.Parameters) {
				if parameter.Value.In == openapi3.ParameterInQuery {
					o.query[parameter.Value.Name] = parameter.Value.Schema.Value.Type.Is(openapi3.TypeArray)
				}
			}
			known[method+" "+pathParameter.ReplaceAllString(path, ":$1")] = o
		}
	}
	return known
}

// guardRequests rejects requests that the guard does not admit. All routes need credentials, except operations that the
// description marks as open; an unknown route is therefore closed.
func guardRequests(guard auth.Guard, known map[string]operation) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if err := guard.Admit(c.Request()); err != nil {
				return err
			}
			if known[c.Request().Method+" "+c.Path()].open {
				return next(c)
			}
			if err := guard.Authenticate(c.Request()); err != nil {
				if problem.Of(err).Status == http.StatusUnauthorized {
					c.Response().Header().Set(echo.HeaderWWWAuthenticate, `Bearer realm="slipway"`)
				}
				return err
			}
			return next(c)
		}
	}
}

// rejectUnknownQuery rejects query parameters that the operation does not have, and repeated single-value parameters:
// they would otherwise be silently ignored.
func rejectUnknownQuery(known map[string]operation) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			o, described := known[c.Request().Method+" "+c.Path()]
			if !described {
				return next(c)
			}
			var problems []schema.FieldProblem
			query := c.QueryParams()
			for _, name := range slices.Sorted(maps.Keys(query)) {
				repeatable, exists := o.query[name]
				switch {
				case !exists:
					problems = append(problems, schema.FieldProblem{Field: name,
						Reason: "is not a query parameter of this address" +
							strictyaml.DidYouMean(name, slices.Sorted(maps.Keys(o.query)))})
				case len(query[name]) > 1 && !repeatable:
					problems = append(problems, schema.FieldProblem{Field: name, Reason: "is given more than once"})
				}
			}
			if len(problems) > 0 {
				return problem.Malformed.Listing(problems, "the query is invalid")
			}
			return next(c)
		}
	}
}
