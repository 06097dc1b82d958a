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
	"slipway.io/slipway/store"
	"slipway.io/slipway/store/recent"
	"slipway.io/slipway/worker"
	"slipway.io/slipway/workflows"
)

// listener is an API on one address.
type listener struct {
	// what is served, as the log has it, and where: attributes.
	what  string
	where []any
	net.Listener
	serve func(net.Listener) error
	end   func(ctx context.Context) error
	log   *slog.Logger
	down  fx.Shutdowner
}

func (l *listener) start(context.Context) error {
	go func() {
		if err := l.serve(l.Listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			l.log.Error(l.what+" is not served any more", append(l.where, "error", err)...)
			_ = l.down.Shutdown(fx.ExitCode(app.ExitFailure))
		}
	}()
	l.log.Info("serving "+l.what, l.where...)
	return nil
}

type apiParts struct {
	fx.In

	Settings settings.Settings
	Store    *store.Store
	Temporal client.Client
	Kuscia   *kuscia.Handler
	Guard    auth.Guard
	Registry *prometheus.Registry
	Beside   besideReleases
	Log      *slog.Logger
}

func newAPI(p apiParts) (*api.API, error) {
	s := p.Settings
	if err := p.Registry.Register(gauges.New(newBackend(p))); err != nil {
		return nil, err
	}
	metrics := promhttp.HandlerFor(p.Registry, promhttp.HandlerOpts{})
	return api.New(api.Deps{Kuscia: p.Kuscia, Metrics: metrics, Guard: p.Guard, MaxEventStreams: s.MaxEventStreams, Backend: *newBackend(p)})
}

// newBackend is what stands behind the API, and behind what else starts and steers releases.
func newBackend(p apiParts) *backend.Backend {
	s := p.Settings
	return &backend.Backend{Home: p.Store, Temporal: p.Temporal, Namespace: s.TemporalNamespace, TemporalUI: s.TemporalUI, Log: p.Log,
		Recent: &recent.Answers{}, Lists: &recent.Answers{}, Checks: &gather.Questions[workflows.RolloutPreflight, workflows.PreflightOutcome]{},
		Beside: p.Beside, MaxConcurrent: s.MaxConcurrentServices, MaxConcurrentWorkloads: s.MaxConcurrentWorkloads,
		UnreachableBudget: s.UnreachableBudget}
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

// newHTTPServer takes the address at once, so that a port in use is an error before anything is started.
func newHTTPServer(p httpParts) (*listener, error) {
	address, err := net.Listen("tcp", p.Settings.Listen)
	if err != nil {
		return nil, fmt.Errorf("cannot serve HTTP: %w; choose another address with --listen", err)
	}
	server, scheme := limits.Default.Server(measured(p.Traces.handler(p.API), p.Registry)), "https://"
	if p.TLS.Config == nil {
		scheme = "http://"
		if !isLoopback(p.Settings.Listen) {
			p.Log.Warn("the HTTP API is not encrypted: tokens can be read on the way, unless a proxy encrypts it (--api-cert-file)")
		}
	}
	end := func(ctx context.Context) error {
		p.API.Close() // event streams would keep a graceful shutdown waiting
		return server.Shutdown(ctx)
	}
	return &listener{what: "HTTP", where: []any{"address", scheme + address.Addr().String()}, Listener: address,
		serve: serveHTTP(server, p.TLS.Config), end: end, log: p.Log, down: p.Down}, nil
}

// serveHTTP serves with TLS where there is a configuration of it.
func serveHTTP(server *http.Server, encryption *tls.Config) func(net.Listener) error {
	if encryption == nil {
		return server.Serve
	}
	server.TLSConfig = encryption.Clone()
	return func(l net.Listener) error { return server.ServeTLS(l, "", "") }
}

type healthParts struct {
	fx.In

	Fleet    *worker.Fleet
	Guard    auth.Guard
	Settings settings.Settings
	Registry *prometheus.Registry
	Log      *slog.Logger
	Down     fx.Shutdowner
}

// newHealthServer is the listener of a worker's health and metrics; nil without an address. It asks for no token: it is metrics' own, and
// shows nothing else.
func newHealthServer(p healthParts) (*listener, error) {
	if p.Settings.MetricsListen == "" {
		return nil, nil
	}
	address, err := net.Listen("tcp", p.Settings.MetricsListen)
	if err != nil {
		return nil, fmt.Errorf("metrics-listen: %w", err)
	}
	checks := []worker.Check{{Name: "worker", Probe: func(context.Context) error { return p.Fleet.Ready() }}}
	server := limits.Default.Server(p.Guard.Handler(worker.HealthHandler(checks, p.Registry)))
	return &listener{what: "health and metrics", where: []any{"address", address.Addr().String()}, Listener: address, serve: server.Serve,
		end: server.Shutdown, log: p.Log, down: p.Down}, nil
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

// kusciaModule is Kuscia's API on listeners of its own, and the handler that the HTTP API answers Kuscia's paths with.
var kusciaModule = fx.Module("kuscia",
	fx.Provide(
		newKusciaSecurity,
		func(store *store.Store, log *slog.Logger) *kuscia.Service { return kuscia.NewService(store, log) },
		func(service *kuscia.Service, security kuscia.Security) *kuscia.Handler {
			return kuscia.NewHandler(service, security)
		},
	),
	fx.Invoke(func(lc fx.Lifecycle, p kusciaParts) error {
		for _, listen := range []func(kusciaParts) (*listener, error){newKusciaHTTP, newKusciaGRPC} {
			l, err := listen(p)
			if err != nil {
				return err
			}
			if l != nil {
				lc.Append(fx.Hook{OnStart: l.start, OnStop: l.end})
			}
		}
		return nil
	}),
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

// kusciaLimits are those of Kuscia itself, as far as it has some.
func kusciaLimits() limits.Limits {
	l := limits.Default
	l.Header, l.Body, l.Idle = 20*time.Second, 20*time.Second, 300*time.Second
	return l
}

func newKusciaHTTP(p kusciaParts) (*listener, error) {
	server := kusciaLimits().Server(p.Handler)
	return p.listen("HTTP", "kuscia-listen", p.Settings.KusciaListen,
		&listener{serve: serveHTTP(server, p.Security.TLS), end: server.Shutdown})
}

func newKusciaGRPC(p kusciaParts) (*listener, error) {
	server := kuscia.NewGRPCServer(p.Service, p.Security)
	return p.listen("gRPC", "kuscia-grpc-listen", p.Settings.KusciaGRPCListen,
		&listener{serve: server.Serve, end: func(ctx context.Context) error {
			return endGRPC(ctx, server)
		}})
}

// endGRPC lets calls that are under way finish, as long as the context permits.
func endGRPC(ctx context.Context, server *grpc.Server) error {
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

// listen takes the address at once, so that a port in use is an error before anything is started. There is no listener without an address.
func (p kusciaParts) listen(over, setting, address string, l *listener) (*listener, error) {
	if address == "" {
		return nil, nil
	}
	taken, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot serve Kuscia's API over %s: %w; choose another address with --%s (%s), or none with --%s=", over, err,
			setting, settings.EnvName(setting), setting)
	}
	l.what, l.where, l.Listener, l.log, l.down = "Kuscia's API", []any{"over", over, "address", taken.Addr().String()}, taken, p.Log, p.Down
	return l, nil
}
