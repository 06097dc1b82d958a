package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.temporal.io/sdk/client"
	"go.uber.org/fx"

	"slipway.io/slipway/api"
	"slipway.io/slipway/api/kuscia"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/store"
)

type apiParts struct {
	fx.In

	Settings settings.Settings
	Store    *store.Store
	Temporal client.Client
	Kuscia   *kuscia.Handler
	Registry *prometheus.Registry
	Log      *slog.Logger
}

func newAPI(p apiParts) (*api.API, error) {
	s := p.Settings
	return api.New(api.Deps{
		Home: p.Store, Temporal: p.Temporal, Namespace: s.TemporalNamespace, TemporalUI: s.TemporalUI, Kuscia: p.Kuscia,
		Metrics: promhttp.HandlerFor(p.Registry, promhttp.HandlerOpts{}), Log: p.Log,
		MaxConcurrent: s.MaxConcurrentServices, MaxConcurrentWorkloads: s.MaxConcurrentWorkloads, UnreachableBudget: s.UnreachableBudget,
	})
}

// headerTimeout bounds how long a client may take over its headers. Bodies and event streams may take longer.
const headerTimeout = 10 * time.Second

// newHTTPServer takes the address at once, so that a port in use is an error before anything is started.
func newHTTPServer(a *api.API, s settings.Settings, log *slog.Logger, down fx.Shutdowner, registry *prometheus.Registry) (*listener, error) {
	address, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return nil, fmt.Errorf("cannot serve HTTP: %w; choose another address with --listen", err)
	}
	server := &http.Server{Handler: measured(a, registry), ReadHeaderTimeout: headerTimeout}
	end := func(ctx context.Context) error {
		a.Close() // event streams would keep a graceful shutdown waiting
		return server.Shutdown(ctx)
	}
	return &listener{what: "HTTP", where: []any{"address", "http://" + address.Addr().String()}, Listener: address, serve: server.Serve,
		end: end, log: log, down: down}, nil
}

// measured counts and times requests by method and status. An event stream counts when it ends.
func measured(handler http.Handler, registry *prometheus.Registry) http.Handler {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "slipway_http_request_duration_seconds",
		Help: "How long HTTP requests took, event streams included.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8)},
		[]string{"code", "method"})
	inFlight := prometheus.NewGauge(prometheus.GaugeOpts{Name: "slipway_http_requests_in_flight",
		Help: "HTTP requests that are being answered, event streams included."})
	registry.MustRegister(seconds, inFlight)
	return promhttp.InstrumentHandlerInFlight(inFlight, promhttp.InstrumentHandlerDuration(seconds, handler))
}
