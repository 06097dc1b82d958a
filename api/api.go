package api

import (
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/client"

	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/parties"
	"slipway.io/slipway/api/plans"
	"slipway.io/slipway/api/rollouts"
	"slipway.io/slipway/api/servings"
	"slipway.io/slipway/api/stream"
	"slipway.io/slipway/api/trafficroutings"
	"slipway.io/slipway/workflows"
)

//go:generate oapi-codegen --config oapi-server.yaml openapi.yaml

//go:embed openapi.yaml
var description []byte

// Deps are what the HTTP front door works with.
type Deps struct {
	backend.Backend
	// Metrics answers /metrics.
	Metrics http.Handler
	// Kuscia answers Kuscia's own paths, which it also answers on listeners of their own.
	Kuscia http.Handler
	// Guard decides which requests are answered.
	Guard auth.Guard
	// MaxEventStreams is how many event streams are open at once at most.
	MaxEventStreams int
}

// API is the HTTP front door: an http.Handler with event streams behind it.
type API struct {
	echo    *echo.Echo
	streams *stream.Hub
}

// New builds the front door. It calls nobody until requests come.
func New(deps Deps) (*API, error) {
	if err := deps.complete(); err != nil {
		return nil, err
	}
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
	e.HTTPErrorHandler = h.answerError
	e.Use(named, identify, h.logged, h.recovered, guarded(deps.Guard, spec), knownQuery(spec), h.forgetful)
	RegisterHandlers(e, h)
	for path, item := range spec.Paths.Map() {
		if item.Post != nil && slices.Contains(item.Post.Tags, "kuscia") {
			e.POST(path, echo.WrapHandler(deps.Kuscia)) // its clients find here what they find on its own listeners
		}
	}
	return &API{echo: e, streams: h.streams}, nil
}

// named names the span of a request after its route; a request without one has no span to name.
func named(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		trace.SpanFromContext(c.Request().Context()).SetName(c.Request().Method + " " + c.Path())
		return next(c)
	}
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.echo.ServeHTTP(w, r) }

// Close ends all event streams, so that a graceful shutdown of the HTTP server need not wait for them. Other requests are answered as
// before.
func (a *API) Close() { a.streams.Close() }

func (d *Deps) complete() error {
	switch {
	case d.Home == nil:
		return errors.New("the API needs a home cluster")
	case d.Temporal == nil:
		return errors.New("the API needs a Temporal client")
	case d.Metrics == nil:
		return errors.New("the API needs a handler of metrics")
	case d.Kuscia == nil:
		return errors.New("the API needs a handler of Kuscia's API")
	}
	if d.Namespace == "" {
		d.Namespace = client.DefaultNamespace
	}
	if d.Log == nil {
		d.Log = slog.Default()
	}
	if d.MaxConcurrent == 0 {
		d.MaxConcurrent = 50
	}
	if d.MaxConcurrentWorkloads == 0 {
		d.MaxConcurrentWorkloads = workflows.DefaultConcurrentWorkloads
	}
	if d.MaxEventStreams == 0 {
		d.MaxEventStreams = 1000
	}
	if d.UnreachableBudget == 0 {
		d.UnreachableBudget = 120 * time.Second
	}
	return nil
}

// handlers answer the operations of openapi.yaml: each resource has a package of its own, what is left is here.
type handlers struct {
	*planHandlers
	*rolloutHandlers
	*servingHandlers
	*trafficHandlers
	*partyHandlers
	*backend.Backend

	streams *stream.Hub
	metrics http.Handler
	docs    []byte
}

// Embedded fields need names that differ.
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
		planHandlers: plans.New(b, streams), rolloutHandlers: rollouts.New(b, streams), servingHandlers: servings.New(b, streams),
		trafficHandlers: trafficroutings.New(b), partyHandlers: parties.New(b),
		Backend: b, streams: streams, metrics: deps.Metrics, docs: docs,
	}
}
