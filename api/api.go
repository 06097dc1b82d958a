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
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/parties"
	"slipway.io/slipway/api/plans"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/rollouts"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/servings"
	"slipway.io/slipway/api/stream"
	"slipway.io/slipway/api/trafficroutings"
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
	b, streams := &deps.Backend, stream.NewHub(deps.MaxEventStreams)
	return &handlers{
		planHandlers:    &plans.Handlers{Backend: b, Streams: streams},
		rolloutHandlers: &rollouts.Handlers{Backend: b, Streams: streams},
		servingHandlers: &servings.Handlers{Backend: b, Streams: streams},
		trafficHandlers: &trafficroutings.Handlers{Backend: b}, partyHandlers: &parties.Handlers{Backend: b},
		Backend: b, streams: streams, deps: deps, docs: docs,
	}
}

// pollerMaxAge is the maximum age of a worker's last poll for the worker to count as running: a poll lasts up to a
// minute.
const pollerMaxAge = 75 * time.Second

// GetHealth answers GET /healthz.
func (h *handlers) GetHealth(c echo.Context) error {
	return c.JSON(http.StatusOK, schema.Health{Status: schema.HealthStatusOK})
}

// GetReadiness answers GET /readyz.
func (h *handlers) GetReadiness(c echo.Context) error {
	checks := []struct {
		name  string
		check func(context.Context) error
	}{
		{"temporal", h.checkTemporal}, {"home cluster", h.Home.CheckCluster}, {"definitions", h.Home.CheckCRDs},
		{"engine worker", h.checkWorker},
	}
	answer := schema.Readiness{Ready: true, Checks: make([]schema.Check, len(checks))}
	ctx, cancel := backend.WithCallTimeout(c.Request().Context())
	defer cancel()
	var wg sync.WaitGroup
	for i, check := range checks {
		wg.Go(func() {
			answer.Checks[i] = schema.Check{Name: check.name, OK: true, Message: "ok"}
			if err := check.check(ctx); err != nil {
				answer.Checks[i].OK, answer.Checks[i].Message = false, err.Error()
			}
		})
	}
	wg.Wait()
	status := http.StatusOK
	for _, check := range answer.Checks {
		if !check.OK {
			answer.Ready, status = false, http.StatusServiceUnavailable
		}
	}
	return c.JSON(status, answer)
}

func (h *handlers) checkTemporal(ctx context.Context) error {
	if _, err := h.Temporal.CheckHealth(ctx, &client.CheckHealthRequest{}); err != nil {
		return fmt.Errorf("does not answer: %w", err)
	}
	_, err := h.Temporal.WorkflowService().DescribeNamespace(ctx,
		&workflowservice.DescribeNamespaceRequest{Namespace: h.Namespace})
	if err != nil {
		return fmt.Errorf("its namespace %s cannot be read: %w", h.Namespace, err)
	}
	return nil
}

// checkWorker checks that a worker polls the engine's own queue, and that this process's own workers do. Missing party
// workers do not affect readiness: their parties are reported as unreachable.
func (h *handlers) checkWorker(ctx context.Context) error {
	if h.deps.OwnWorkers != nil {
		if err := h.deps.OwnWorkers(); err != nil {
			return err
		}
	}
	polled, err := h.HasRecentPoller(ctx, pollerMaxAge)
	switch {
	case err != nil:
		return fmt.Errorf("its queue %s cannot be read: %w", workflows.QueueEngine, err)
	case polled:
		return nil
	}
	return errors.New("no workflow worker takes work: start one (slipway worker, or slipway dev)")
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
