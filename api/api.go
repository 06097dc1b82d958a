// Package api is Slipway's HTTP API. openapi.yaml is its source: server.gen.go, the package schema and the package
// client are generated from it. Each resource has its own package (plans, rollouts, servings, parties,
// trafficroutings), which this package combines; the packages start, stream, input, answer, problem and backend
// hold shared code.
//
// The API decides nothing about a release: release/plan validates plans, tasks run as Temporal workflows, and the home
// cluster holds declared objects and records.
package api

import (
	"cmp"
	_ "embed"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/client"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/limits"
	"slipway.io/slipway/api/parties"
	"slipway.io/slipway/api/plans"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/rollouts"
	"slipway.io/slipway/api/servings"
	"slipway.io/slipway/api/stream"
	"slipway.io/slipway/api/trafficroutings"
	"slipway.io/slipway/recent"
	"slipway.io/slipway/workflows"
)

//go:generate oapi-codegen --config oapi-server.yaml openapi.yaml

//go:embed openapi.yaml
var description []byte

// Deps are the dependencies of the HTTP API.
type Deps struct {
	backend.Backend
	// Metrics serves /metrics.
	Metrics http.Handler
	// Kuscia serves Kuscia's own paths. The same handler also serves Kuscia's own listeners.
	Kuscia http.Handler
	// Guard decides which requests are admitted.
	Guard auth.Guard
	// MaxEventStreams is the maximum number of event streams open at the same time (0: 1000).
	MaxEventStreams int
	// OwnWorkers returns why the workers of this process don't work; nil: the process has none.
	OwnWorkers func() error
	// Installed returns what the cluster lacks of what an administrator installs, or has of another product's; nil: it
	// isn't checked. The engine works without it, so it doesn't count for the readiness.
	Installed func() error
}

// API is the handler of the HTTP API, including its event streams.
type API struct {
	echo    *echo.Echo
	streams *stream.Hub
}

// New builds the API. It makes no calls to the home cluster or Temporal until the first request.
func New(deps Deps) (*API, error) {
	deps.complete()
	spec, err := openapi3.NewLoader().LoadFromData(description)
	if err != nil {
		return nil, fmt.Errorf("read the embedded API description: %w", err)
	}
	page, err := renderDocs(spec)
	if err != nil {
		return nil, fmt.Errorf("render the API's documentation: %w", err)
	}
	h := newHandlers(deps, page)
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.HTTPErrorHandler = problem.Handler(h.Log)
	e.IPExtractor = deps.Guard.Proxies.Client
	known := operations(spec)
	e.Use(nameSpan, assignRequestID, answer.LogRequests(h.Log, "request", probes...), h.recoverPanics,
		guardRequests(deps.Guard, known), rejectUnknownQuery(known), h.dropCacheAfterWrite)
	RegisterHandlers(e, h)
	registerVerbs(e, ServerInterfaceWrapper{Handler: h})
	for path, item := range spec.Paths.Map() {
		if item.Post != nil && slices.Contains(item.Post.Tags, "kuscia") {
			// Kuscia's paths are served here as well as on Kuscia's own listeners
			e.POST(path, echo.WrapHandler(deps.Kuscia))
		}
	}
	return &API{echo: e, streams: h.streams}, nil
}

// registerVerbs adds the routes of all verbs but approve. The verbs of a kind have the same parameters: one handler
// serves them, and takes the verb from the route.
func registerVerbs(e *echo.Echo, w ServerInterfaceWrapper) {
	for _, kind := range []struct {
		path    string
		handler echo.HandlerFunc
		verbs   []string
	}{
		{"/api/v1/tasks/:id/", w.ApproveTask, []string{"pause", "resume", "stop"}},
		{"/api/v1/rollouts/:namespace/:name/", w.ApproveRollout,
			[]string{"pause", "resume", "rollback", "stop", "jump", "retry", "promote"}},
		{"/api/v1/servings/:id/", w.ApproveServing, []string{"pause", "resume", "stop"}},
	} {
		for _, verb := range kind.verbs {
			e.POST(kind.path+verb, kind.handler)
		}
	}
}

// nameSpan renames the span of a request to its method and route.
func nameSpan(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		trace.SpanFromContext(c.Request().Context()).SetName(c.Request().Method + " " + c.Path())
		return next(c)
	}
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.echo.ServeHTTP(w, r) }

// Close ends all event streams, so that a graceful shutdown of the HTTP server does not wait for them. Other requests
// are still answered.
func (a *API) Close() { a.streams.Close() }

// complete fills in what may be left out.
func (d *Deps) complete() {
	d.Namespace, d.Log = cmp.Or(d.Namespace, client.DefaultNamespace), cmp.Or(d.Log, slog.Default())
	d.MaxConcurrent = cmp.Or(d.MaxConcurrent, 50)
	d.MaxConcurrentWorkloads = cmp.Or(d.MaxConcurrentWorkloads, workflows.DefaultConcurrentWorkloads)
	d.MaxEventStreams = cmp.Or(d.MaxEventStreams, 1000)
	d.UnreachableBudget = cmp.Or(d.UnreachableBudget, 120*time.Second)
}

// handlers implements the operations of openapi.yaml: each resource has its own package; health, metrics and
// documentation are here.
type handlers struct {
	*planHandlers
	*rolloutHandlers
	*servingHandlers
	*trafficHandlers
	*partyHandlers
	*backend.Backend

	deps    Deps
	streams *stream.Hub
	docs    []byte
	// readiness keeps the last report for a short time: it costs a dozen calls, and every client may ask for it.
	readiness recent.Cache
}

// Aliases, because embedded fields need distinct names.
type (
	planHandlers    = plans.Handlers
	rolloutHandlers = rollouts.Handlers
	servingHandlers = servings.Handlers
	trafficHandlers = trafficroutings.Handlers
	partyHandlers   = parties.Handlers
)

var _ ServerInterface = (*handlers)(nil)

func newHandlers(deps Deps, docs []byte) *handlers {
	var byAddress *limits.ByAddress // none for clients with credentials
	if !deps.Guard.Closed() {
		byAddress = limits.NewByAddress(deps.MaxEventStreams)
	}
	b, streams := &deps.Backend, stream.NewHub(deps.MaxEventStreams, byAddress)
	return &handlers{
		planHandlers:    &plans.Handlers{Backend: b, Streams: streams},
		rolloutHandlers: &rollouts.Handlers{Backend: b, Streams: streams},
		servingHandlers: &servings.Handlers{Backend: b, Streams: streams},
		trafficHandlers: &trafficroutings.Handlers{Backend: b}, partyHandlers: &parties.Handlers{Backend: b},
		Backend: b, streams: streams, deps: deps, docs: docs,
	}
}

// GetMetrics answers GET /metrics.
func (h *handlers) GetMetrics(c echo.Context) error {
	h.deps.Metrics.ServeHTTP(c.Response(), c.Request())
	return nil
}

// GetOpenAPI answers GET /openapi.yaml.
func (h *handlers) GetOpenAPI(c echo.Context) error {
	return c.Blob(http.StatusOK, answer.TypeYAML, description)
}

// GetDocs answers GET /docs.
func (h *handlers) GetDocs(c echo.Context) error {
	c.Response().Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	return c.HTMLBlob(http.StatusOK, h.docs)
}
