package main

import (
	"context"
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
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/kuscia"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/store"
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
	Registry *prometheus.Registry
	Log      *slog.Logger
}

func newAPI(p apiParts) (*api.API, error) {
	s := p.Settings
	return api.New(api.Deps{Kuscia: p.Kuscia, Metrics: promhttp.HandlerFor(p.Registry, promhttp.HandlerOpts{}), Backend: backend.Backend{
		Home: p.Store, Temporal: p.Temporal, Namespace: s.TemporalNamespace, TemporalUI: s.TemporalUI, Log: p.Log,
		MaxConcurrent: s.MaxConcurrentServices, MaxConcurrentWorkloads: s.MaxConcurrentWorkloads, UnreachableBudget: s.UnreachableBudget,
	}})
}

// headerTimeout bounds how long a client may take over its headers. Bodies and event streams may take longer.
const headerTimeout = 10 * time.Second

// newHTTPServer takes the address at once, so that a port in use is an error before anything is started.
func newHTTPServer(a *api.API, s settings.Settings, log *slog.Logger, down fx.Shutdowner,
	registry *prometheus.Registry) (*listener, error) {
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

// kusciaModule is Kuscia's API on listeners of its own, and the handler that the HTTP API answers Kuscia's paths with.
var kusciaModule = fx.Module("kuscia",
	fx.Provide(
		newKusciaSecurity,
		func(store *store.Store, log *slog.Logger) *kuscia.Service { return kuscia.NewService(store, log) },
		func(service *kuscia.Service, security kuscia.Security) *kuscia.Handler {
			return kuscia.NewHandler(service, security.Token)
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

func newKusciaSecurity(s settings.Settings) (kuscia.Security, error) {
	if err := checkKuscia(s); err != nil {
		return kuscia.Security{}, err
	}
	files := kuscia.Files{Certificate: s.KusciaCertFile, Key: s.KusciaKeyFile, CA: s.KusciaCAFile, Token: s.KusciaTokenFile}
	security, err := kuscia.LoadSecurity(kuscia.Protocol(s.KusciaProtocol), files)
	if err != nil {
		return kuscia.Security{}, fmt.Errorf("--kuscia-protocol %s: %w", s.KusciaProtocol, err)
	}
	return security, nil
}

// checkKuscia refuses files that the protocol needs and does not have or would ignore, and an open door that nobody has asked for.
func checkKuscia(s settings.Settings) error {
	protocol := kuscia.Protocol(s.KusciaProtocol)
	for _, file := range []struct {
		name, path string
		needed     bool
	}{
		{"kuscia-cert-file", s.KusciaCertFile, protocol != kuscia.NOTLS}, {"kuscia-key-file", s.KusciaKeyFile, protocol != kuscia.NOTLS},
		{"kuscia-ca-file", s.KusciaCAFile, protocol == kuscia.MTLS}, {"kuscia-token-file", s.KusciaTokenFile, protocol != kuscia.NOTLS},
	} {
		switch {
		case file.needed && file.path == "":
			return fmt.Errorf("--kuscia-protocol %s needs --%s", protocol, file.name)
		case !file.needed && file.path != "":
			return fmt.Errorf("--%s is not used with --kuscia-protocol %s: leave it out, or choose another protocol", file.name, protocol)
		}
	}
	if protocol != kuscia.NOTLS || s.KusciaInsecure {
		return nil
	}
	for _, listen := range []struct{ name, address string }{{"kuscia-listen", s.KusciaListen}, {"kuscia-grpc-listen", s.KusciaGRPCListen}} {
		if listen.address != "" && !isLoopback(listen.address) {
			return fmt.Errorf("--%s %s can be reached by others, and with --kuscia-protocol NOTLS anybody could change servings: choose "+
				"TLS or MTLS, "+
				"listen on 127.0.0.1, or say --kuscia-insecure", listen.name, listen.address)
		}
	}
	return nil
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// How long a client may take over a request, and how long a connection may be without one, as Kuscia has it.
const (
	kusciaReadTimeout = 20 * time.Second
	kusciaIdleTimeout = 300 * time.Second
)

func newKusciaHTTP(p kusciaParts) (*listener, error) {
	server := &http.Server{Handler: p.Handler, ReadTimeout: kusciaReadTimeout, ReadHeaderTimeout: kusciaReadTimeout,
		IdleTimeout: kusciaIdleTimeout}
	serve := server.Serve
	if p.Security.TLS != nil {
		server.TLSConfig = p.Security.TLS.Clone()
		serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	return p.listen("HTTP", "kuscia-listen", p.Settings.KusciaListen, &listener{serve: serve, end: server.Shutdown})
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
