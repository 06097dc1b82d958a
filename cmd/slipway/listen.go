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
	"slipway.io/slipway/api/temporalui"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/recent"
	"slipway.io/slipway/store"
	"slipway.io/slipway/worker"
	"slipway.io/slipway/workflows"
)

// Process are the parts of every process.
type Process struct {
	fx.In
	Settings settings.Settings
	Registry *prometheus.Registry
	Failures *auth.Failures
	Log      *slog.Logger
	Down     fx.Shutdowner
}

// listener serves an API on one address.
type listener struct {
	// what is the name of the API in the log, where its attributes.
	what  string
	where []any
	// insecure is the warning in the log if the API is not encrypted on an address other than loopback; "" for none.
	insecure  string
	encrypted bool
	net.Listener
	serve func(net.Listener) error
	stop  func(ctx context.Context) error
	Process
}

// listenHTTP returns the listener of an HTTP server; it serves with TLS if encryption is not nil.
func listenHTTP(what string, server *http.Server, encryption *tls.Config) listener {
	l := listener{what: what, encrypted: encryption != nil, serve: server.Serve, stop: server.Shutdown}
	if l.encrypted {
		server.TLSConfig = encryption.Clone() // the server changes it, and others share it
		l.serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	return l
}

// listen listens immediately, so that a port in use is reported before anything starts. refusal is the format of the
// error then.
func (p Process) listen(l listener, address, refusal string) (*listener, error) {
	taken, err := net.Listen("tcp", address)
	if err != nil {
		return nil, errors.Join(fmt.Errorf(refusal, err), l.stop(context.Background()))
	}
	shown := taken.Addr().String()
	switch {
	case l.insecure == "":
	case l.encrypted:
		shown = "https://" + shown
	default:
		shown = "http://" + shown
		if !isLoopback(address) {
			p.Log.Warn(l.insecure)
		}
	}
	l.Process, l.Listener, l.where = p, taken, append([]any{"address", shown}, l.where...)
	return &l, nil
}

func (l *listener) start(context.Context) error {
	go func() {
		if err := l.serve(l.Listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			l.Log.Error(l.what+" stopped unexpectedly", append(l.where, "error", err)...)
			_ = l.Down.Shutdown(fx.ExitCode(app.ExitFailure))
		}
	}()
	l.Log.Info("serving "+l.what, l.where...)
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
	fx.Provide(newAPI, newAPITLS),
	fx.Invoke(func(home *store.Store, s settings.Settings) { home.SetEngineName(s.EngineName) }),
	serve(newHTTPServer), serve(newTemporalUI),
)

// BackendParts are what starts and controls releases: the API of a server, and the Rollout controller of a worker.
type BackendParts struct {
	Process
	Store         *store.Store
	Temporal      client.Client
	OtherReleaser otherReleaser
}

type apiParts struct {
	BackendParts
	Kuscia    *kuscia.Handler
	Guard     auth.Guard
	Installed *installed
	// Fleet is nil in a process without workers.
	Fleet *worker.Fleet `optional:"true"`
}

func newAPI(p apiParts) (*api.API, error) {
	s := p.Settings
	if err := p.Registry.Register(gauges.New(newBackend(p.BackendParts))); err != nil {
		return nil, err
	}
	metrics := promhttp.HandlerFor(p.Registry, promhttp.HandlerOpts{})
	deps := api.Deps{Kuscia: p.Kuscia, Metrics: metrics, Guard: p.Guard, MaxEventStreams: s.MaxEventStreams,
		Installed: p.Installed.Err, Backend: *newBackend(p.BackendParts)}
	if p.Fleet != nil {
		deps.OwnWorkers = p.Fleet.Ready
	}
	return api.New(deps)
}

// newBackend returns the backend that the API and the Rollout controller use to start and control releases.
func newBackend(p BackendParts) *backend.Backend {
	s := p.Settings
	return &backend.Backend{Home: p.Store, Temporal: p.Temporal, Namespace: s.TemporalNamespace,
		TemporalUI: s.TemporalUI, Log: p.Log, Recent: &recent.Cache{}, Lists: &recent.Cache{},
		Checks:          &gather.Batcher[workflows.RolloutPreflight, workflows.PreflightOutcome]{},
		OtherController: p.OtherReleaser, MaxConcurrent: s.MaxConcurrentServices,
		MaxConcurrentWorkloads: s.MaxConcurrentWorkloads, UnreachableBudget: s.UnreachableBudget}
}

type httpParts struct {
	Process
	API    *api.API
	TLS    apiTLS
	Traces *tracing
}

func newHTTPServer(p httpParts) (*listener, error) {
	server := limits.Default.Server(withMetrics(p.Traces.handler(p.API), p.Registry))
	l := listenHTTP("HTTP", server, p.TLS.Config)
	l.insecure = "the HTTP API is not encrypted: tokens can be intercepted unless a proxy encrypts the connection " +
		"(--api-cert-file)"
	l.stop = func(ctx context.Context) error {
		p.API.Close() // open event streams would block the graceful shutdown
		return server.Shutdown(ctx)
	}
	return p.listen(l, p.Settings.Listen, "cannot serve HTTP: %w; choose another address with --listen")
}

type uiParts struct {
	Process
	Guard auth.Guard
	TLS   apiTLS
}

// newTemporalUI returns the listener of Temporal's Web UI; nil without --temporal-ui-upstream.
func newTemporalUI(p uiParts) (*listener, error) {
	s := p.Settings
	if s.TemporalUIUpstream == "" {
		return nil, nil
	}
	if !isLoopback(s.TemporalUIListen) && !p.Guard.Closed() {
		return nil, fmt.Errorf("--temporal-ui-listen %s is reachable from other machines without authentication, and "+
			"releases are approved there: set --api-token-file, or --api-ca-file for client certificates, or listen "+
			"on 127.0.0.1", s.TemporalUIListen)
	}
	guard := p.Guard
	guard.Basic, guard.Token.API, guard.Token.Label = true, "the Temporal UI", "temporal-ui"
	guard.Token.Header = "password of HTTP basic authentication"
	handler, err := temporalui.New(s.TemporalUIUpstream, guard, p.Log)
	if err != nil {
		return nil, fmt.Errorf("--temporal-ui-upstream: %w", err)
	}
	l := listenHTTP("the Temporal UI", limits.Default.Server(handler), p.TLS.Config)
	l.where = []any{"upstream", s.TemporalUIUpstream}
	l.insecure = "the Temporal UI is not encrypted: the token can be intercepted unless a proxy encrypts the " +
		"connection (--api-cert-file)"
	return p.listen(l, s.TemporalUIListen,
		"cannot serve the Temporal UI: %w; choose another address with --temporal-ui-listen")
}

// healthModule serves health and metrics of a worker without an API, if --metrics-listen is set.
var healthModule = serve(newHealthServer)

type healthParts struct {
	Process
	Fleet *worker.Fleet
	Guard auth.Guard
}

// newHealthServer returns the listener of a worker's health and metrics; nil without an address. It requires no token,
// because it exposes nothing else.
func newHealthServer(p healthParts) (*listener, error) {
	if p.Settings.MetricsListen == "" {
		return nil, nil
	}
	health := worker.HealthHandler("worker", func(context.Context) error { return p.Fleet.Ready() }, p.Registry)
	server := limits.Default.Server(p.Guard.Handler(health))
	return p.listen(listenHTTP("health and metrics", server, nil), p.Settings.MetricsListen, "metrics-listen: %w")
}

// withMetrics counts and times requests by method and status. An event stream is counted when it ends.
func withMetrics(handler http.Handler, registry *prometheus.Registry) http.Handler {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "slipway_http_request_duration_seconds",
		Help: "How long HTTP requests took, event streams included.", Buckets: prometheus.ExponentialBuckets(0.001,
			4, 8)}, []string{"code", "method"})
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
	Process
	Security kuscia.Security
	Service  *kuscia.Service
	Handler  *kuscia.Handler
}

func newKusciaHTTP(p kusciaParts) (*listener, error) {
	own := limits.Default // with Kuscia's own limits, where Kuscia has them
	own.Header, own.Body, own.Idle = 20*time.Second, 20*time.Second, 300*time.Second
	l := listenHTTP("Kuscia's API", own.Server(p.Handler), p.Security.TLS.Config())
	return p.listenKuscia("HTTP", "kuscia-listen", p.Settings.KusciaListen, l)
}

func newKusciaGRPC(p kusciaParts) (*listener, error) {
	server := kuscia.NewGRPCServer(p.Service, p.Security)
	return p.listenKuscia("gRPC", "kuscia-grpc-listen", p.Settings.KusciaGRPCListen, listener{what: "Kuscia's API",
		serve: server.Serve, stop: func(ctx context.Context) error { return stopGRPC(ctx, server) }})
}

// stopGRPC stops the server gracefully until the context ends, then forcibly.
func stopGRPC(ctx context.Context, server *grpc.Server) error {
	defer context.AfterFunc(ctx, server.Stop)()
	server.GracefulStop()
	return ctx.Err()
}

// listenKuscia returns nil without an address.
func (p kusciaParts) listenKuscia(over, setting, address string, l listener) (*listener, error) {
	if address == "" {
		return nil, nil
	}
	l.where = []any{"over", over}
	return p.listen(l, address, "cannot serve Kuscia's API over "+over+": %w; choose another address with --"+setting+
		" ("+settings.EnvName(setting)+"), or disable it with --"+setting+"=")
}

// apiTLS is the TLS configuration of the HTTP API; without a Config it serves plain HTTP.
type apiTLS struct{ *tls.Config }

// apiName is the name of the HTTP API in errors.
const apiName = "the HTTP API"

// newFailures returns the count of failed authentications of all listeners of this process.
func newFailures(registry *prometheus.Registry, log *slog.Logger) (*auth.Failures, error) {
	return auth.NewFailures(log, registry)
}

// newGuard returns the access rules of the HTTP API. All other listeners of this process use its rules for hosts and
// origins.
func newGuard(s settings.Settings, failures *auth.Failures) (auth.Guard, error) {
	guard := auth.Guard{
		Hosts: auth.NewHosts([]string{s.Listen, s.KusciaListen, s.KusciaGRPCListen, s.MetricsListen,
			s.TemporalUIListen}, s.AllowedHosts),
		Token: auth.Lock{API: "this engine", Label: "http", Source: "the engine's --api-token-file",
			Header: auth.BearerHeader, Failures: failures},
		Certificate: s.APICAFile != "",
	}
	var err error
	if guard.Proxies, err = limits.NewProxies(s.TrustedProxies); err != nil {
		return guard, fmt.Errorf("--trusted-proxies: %w", err)
	}
	if s.APITokenFile == "" {
		return guard, nil
	}
	if guard.Token.Token, err = auth.OpenToken(apiName, s.APITokenFile); err != nil {
		return guard, fmt.Errorf("--api-token-file: %w", err)
	}
	return guard, nil
}

// newAPITLS reads the certificates of the HTTP API. TLS verifies a client certificate if there is one. The guard
// requires it, because health probes have none.
func newAPITLS(s settings.Settings, log *slog.Logger) (apiTLS, error) {
	if err := checkAPI(s); err != nil || s.APICertFile == "" {
		return apiTLS{}, err
	}
	files, err := auth.LoadTLS(apiName, log, s.APICertFile, s.APIKeyFile, s.APICAFile, tls.VerifyClientCertIfGiven)
	return apiTLS{files.Config()}, err
}

// checkAPI rejects incomplete settings, and an address other than loopback without authentication.
func checkAPI(s settings.Settings) error {
	switch {
	case (s.APICertFile == "") != (s.APIKeyFile == ""):
		return errors.New("--api-cert-file and --api-key-file must be set together")
	case s.APICAFile != "" && s.APICertFile == "":
		return errors.New("--api-ca-file requires TLS: set --api-cert-file and --api-key-file too")
	case !isLoopback(s.Listen) && s.APITokenFile == "" && s.APICAFile == "":
		return fmt.Errorf("--listen %s is reachable from other machines without authentication: set --api-token-file "+
			"(the file is created if it does not exist), or --api-cert-file, --api-key-file and --api-ca-file "+
			"for client certificates, or listen on 127.0.0.1", s.Listen)
	}
	return nil
}

// newKusciaSecurity returns the access rules of Kuscia's API. Without TLS of its own, it requires the token of the HTTP
// API if there is one.
func newKusciaSecurity(s settings.Settings, guard auth.Guard, log *slog.Logger) (kuscia.Security, error) {
	if err := checkKuscia(s); err != nil {
		return kuscia.Security{}, err
	}
	files := kuscia.Files{Certificate: s.KusciaCertFile, Key: s.KusciaKeyFile, CA: s.KusciaCAFile,
		Token: s.KusciaTokenFile}
	security, err := kuscia.LoadSecurity(kuscia.Protocol(s.KusciaProtocol), files, guard.Token, log)
	if err != nil {
		return kuscia.Security{}, fmt.Errorf("--kuscia-protocol %s: %w", s.KusciaProtocol, err)
	}
	security.Hosts, security.Proxies = guard.Hosts, guard.Proxies
	if guard.Certificate && !security.Closed() && s.KusciaListen+s.KusciaGRPCListen != "" {
		log.Warn("the listeners of Kuscia's API require no credentials, because without TLS they cannot ask for the " +
			"client certificates of the HTTP API: choose --kuscia-protocol MTLS, or disable them with --kuscia-listen= " +
			"and --kuscia-grpc-listen=")
	}
	return security, nil
}

// checkKuscia rejects missing and unused files for the protocol, and an address other than loopback without
// authentication.
func checkKuscia(s settings.Settings) error {
	protocol := kuscia.Protocol(s.KusciaProtocol)
	for _, file := range []struct {
		name, path string
		needed     bool
	}{
		{"kuscia-cert-file", s.KusciaCertFile, protocol != kuscia.NOTLS},
		{"kuscia-key-file", s.KusciaKeyFile, protocol != kuscia.NOTLS},
		{"kuscia-ca-file", s.KusciaCAFile, protocol == kuscia.MTLS},
		{"kuscia-token-file", s.KusciaTokenFile, protocol != kuscia.NOTLS},
	} {
		switch {
		case file.needed && file.path == "":
			return fmt.Errorf("--kuscia-protocol %s needs --%s", protocol, file.name)
		case !file.needed && file.path != "":
			return fmt.Errorf("--%s is not used with --kuscia-protocol %s: remove it, or choose another protocol",
				file.name, protocol)
		}
	}
	if protocol != kuscia.NOTLS || s.KusciaInsecure {
		return nil
	}
	for _, listen := range []struct{ name, address string }{{"kuscia-listen", s.KusciaListen},
		{"kuscia-grpc-listen", s.KusciaGRPCListen}} {
		if listen.address != "" && !isLoopback(listen.address) {
			return fmt.Errorf("--%s %s is reachable from other machines, and --kuscia-protocol NOTLS has no "+
				"encryption and no token of its own: choose TLS or MTLS, listen on 127.0.0.1, or set --kuscia-insecure",
				listen.name, listen.address)
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
