package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.temporal.io/sdk/client"
	"go.uber.org/fx"
	"google.golang.org/grpc"

	"slipway.io/slipway/api"
	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/gather"
	"slipway.io/slipway/api/gauges"
	"slipway.io/slipway/api/kuscia"
	"slipway.io/slipway/api/limits"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/recent"
	"slipway.io/slipway/store"
	"slipway.io/slipway/worker"
	"slipway.io/slipway/workflows"
)

// listener serves an API on one address.
type listener struct {
	// what is the name of the API in the log, where its attributes.
	what  string
	where []any
	net.Listener
	serve func(net.Listener) error
	stop  func(ctx context.Context) error
	log   *slog.Logger
	down  fx.Shutdowner
}

func (l *listener) start(context.Context) error {
	go func() {
		if err := l.serve(l.Listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			l.log.Error(l.what+" stopped unexpectedly", append(l.where, "error", err)...)
			_ = l.down.Shutdown(fx.ExitCode(app.ExitFailure))
		}
	}()
	l.log.Info("serving "+l.what, l.where...)
	return nil
}

// serve runs a listener for the life of the process; listen returns nil if the settings disable it.
func serve[P any](listen func(P) (*listener, error)) fx.Option {
	return fx.Invoke(func(lc fx.Lifecycle, p P) error {
		l, err := listen(p)
		if err != nil || l == nil {
			return err
		}
		lc.Append(fx.Hook{OnStart: l.start, OnStop: l.stop})
		return nil
	})
}

// serverModule serves the HTTP API.
var serverModule = fx.Module("server",
	fx.Provide(newAPI, newAPITLS, newOtherReleaser),
	fx.Invoke(func(home *store.Store, s settings.Settings) { home.SetEngineName(s.EngineName) }),
	serve(newHTTPServer),
)

type apiParts struct {
	fx.In

	Settings      settings.Settings
	Store         *store.Store
	Temporal      client.Client
	Kuscia        *kuscia.Handler
	Guard         auth.Guard
	Registry      *prometheus.Registry
	OtherReleaser otherReleaser
	Log           *slog.Logger
	// Fleet is nil in a process without workers.
	Fleet *worker.Fleet `optional:"true"`
}

func newAPI(p apiParts) (*api.API, error) {
	s := p.Settings
	if err := p.Registry.Register(gauges.New(newBackend(p))); err != nil {
		return nil, err
	}
	metrics := promhttp.HandlerFor(p.Registry, promhttp.HandlerOpts{})
	deps := api.Deps{Kuscia: p.Kuscia, Metrics: metrics, Guard: p.Guard, MaxEventStreams: s.MaxEventStreams,
		Backend: *newBackend(p)}
	if p.Fleet != nil {
		deps.OwnWorkers = p.Fleet.Ready
	}
	return api.New(deps)
}

// newBackend returns the backend that the API and the Rollout controller use to start and control releases.
func newBackend(p apiParts) *backend.Backend {
	s := p.Settings
	return &backend.Backend{Home: p.Store, Temporal: p.Temporal, Namespace: s.TemporalNamespace,
		TemporalUI: s.TemporalUI, Log: p.Log,
		Recent: &recent.Cache{}, Lists: &recent.Cache{},
		Checks:          &gather.Batcher[workflows.RolloutPreflight, workflows.PreflightOutcome]{},
		OtherController: p.OtherReleaser, MaxConcurrent: s.MaxConcurrentServices,
		MaxConcurrentWorkloads: s.MaxConcurrentWorkloads,
		UnreachableBudget:      s.UnreachableBudget}
}

type httpParts struct {
	fx.In

	API      *api.API
	TLS      apiTLS
	Settings settings.Settings
	Registry *prometheus.Registry
	Log      *slog.Logger
	Down     fx.Shutdowner
	Traces   *tracing
}

// newHTTPServer listens immediately, so that a port in use is reported before anything starts.
func newHTTPServer(p httpParts) (*listener, error) {
	address, err := net.Listen("tcp", p.Settings.Listen)
	if err != nil {
		return nil, fmt.Errorf("cannot serve HTTP: %w; choose another address with --listen", err)
	}
	server, scheme := limits.Default.Server(withMetrics(p.Traces.handler(p.API), p.Registry)), "https://"
	if p.TLS.Config == nil {
		scheme = "http://"
		if !isLoopback(p.Settings.Listen) {
			p.Log.Warn("the HTTP API is not encrypted: tokens can be intercepted unless a proxy encrypts the " +
				"connection (--api-cert-file)")
		}
	}
	end := func(ctx context.Context) error {
		p.API.Close() // open event streams would block the graceful shutdown
		return server.Shutdown(ctx)
	}
	return &listener{what: "HTTP", where: []any{"address", scheme + address.Addr().String()}, Listener: address,
		serve: serveHTTP(server, p.TLS.Config), stop: end, log: p.Log, down: p.Down}, nil
}

// serveHTTP serves with TLS if encryption is not nil.
func serveHTTP(server *http.Server, encryption *tls.Config) func(net.Listener) error {
	if encryption == nil {
		return server.Serve
	}
	server.TLSConfig = encryption.Clone()
	return func(l net.Listener) error { return server.ServeTLS(l, "", "") }
}

// healthModule serves health and metrics of a worker without an API, if --metrics-listen is set.
var healthModule = serve(newHealthServer)

type healthParts struct {
	fx.In

	Fleet    *worker.Fleet
	Guard    auth.Guard
	Settings settings.Settings
	Registry *prometheus.Registry
	Log      *slog.Logger
	Down     fx.Shutdowner
}

// newHealthServer returns the listener of a worker's health and metrics; nil without an address. It requires no token,
// because it exposes nothing else.
func newHealthServer(p healthParts) (*listener, error) {
	if p.Settings.MetricsListen == "" {
		return nil, nil
	}
	address, err := net.Listen("tcp", p.Settings.MetricsListen)
	if err != nil {
		return nil, fmt.Errorf("metrics-listen: %w", err)
	}
	health := worker.HealthHandler("worker", func(context.Context) error { return p.Fleet.Ready() }, p.Registry)
	server := limits.Default.Server(p.Guard.Handler(health))
	return &listener{what: "health and metrics", where: []any{"address", address.Addr().String()}, Listener: address,
		serve: server.Serve,
		stop:  server.Shutdown, log: p.Log, down: p.Down}, nil
}

// withMetrics counts and times requests by method and status. An event stream is counted when it ends.
func withMetrics(handler http.Handler, registry *prometheus.Registry) http.Handler {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "slipway_http_request_duration_seconds",
		Help:    "How long HTTP requests took, event streams included.",
		Buckets: prometheus.ExponentialBuckets(0.001, 4, 8)},
		[]string{"code", "method"})
	inFlight := prometheus.NewGauge(prometheus.GaugeOpts{Name: "slipway_http_requests_in_flight",
		Help: "HTTP requests in flight, event streams included."})
	registry.MustRegister(seconds, inFlight)
	return promhttp.InstrumentHandlerInFlight(inFlight, promhttp.InstrumentHandlerDuration(seconds, handler))
}

// kusciaModule serves Kuscia's API on its own listeners, and provides the handler for Kuscia's paths on the HTTP API.
var kusciaModule = fx.Module("kuscia",
	fx.Provide(
		newKusciaSecurity,
		func(store *store.Store, log *slog.Logger) *kuscia.Service { return kuscia.NewService(store, log) },
		kuscia.NewHandler,
	),
	serve(newKusciaHTTP), serve(newKusciaGRPC),
)

type kusciaParts struct {
	fx.In

	Settings settings.Settings
	Security kuscia.Security
	Service  *kuscia.Service
	Handler  *kuscia.Handler
	Log      *slog.Logger
	Down     fx.Shutdowner
}

// kusciaLimits returns Kuscia's own limits where Kuscia has them, and Slipway's defaults otherwise.
func kusciaLimits() limits.Limits {
	l := limits.Default
	l.Header, l.Body, l.Idle = 20*time.Second, 20*time.Second, 300*time.Second
	return l
}

func newKusciaHTTP(p kusciaParts) (*listener, error) {
	server := kusciaLimits().Server(p.Handler)
	return p.listen("HTTP", "kuscia-listen", p.Settings.KusciaListen,
		&listener{serve: serveHTTP(server, p.Security.TLS), stop: server.Shutdown})
}

func newKusciaGRPC(p kusciaParts) (*listener, error) {
	server := kuscia.NewGRPCServer(p.Service, p.Security)
	return p.listen("gRPC", "kuscia-grpc-listen", p.Settings.KusciaGRPCListen,
		&listener{serve: server.Serve, stop: func(ctx context.Context) error {
			return stopGRPC(ctx, server)
		}})
}

// stopGRPC stops the server gracefully until the context ends, then forcibly.
func stopGRPC(ctx context.Context, server *grpc.Server) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.GracefulStop()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		server.Stop()
		return ctx.Err()
	}
}

// listen listens immediately, so that a port in use is reported before anything starts. It returns nil without an
// address.
func (p kusciaParts) listen(over, setting, address string, l *listener) (*listener, error) {
	if address == "" {
		return nil, nil
	}
	taken, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot serve Kuscia's API over %s: %w; choose another address with --%s (%s), or "+
			"disable it with --%s=", over, err,
			setting, settings.EnvName(setting), setting)
	}
	l.what, l.where, l.Listener, l.log, l.down = "Kuscia's API", []any{"over", over, "address", taken.Addr().String()},
		taken, p.Log, p.Down
	return l, nil
}
