package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	temporalworker "go.temporal.io/sdk/worker"
	"go.uber.org/dig"
	"go.uber.org/fx"
	"google.golang.org/grpc"

	"slipway.io/slipway/activities/versions"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/cli/version"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/upgrade"
	"slipway.io/slipway/temporal/link"
	"slipway.io/slipway/worker"
)

func runServer(ctx context.Context, s settings.Settings) error {
	if err := checkIdentities(s, false); err != nil {
		return err
	}
	return runEngine(ctx, s, fx.Supply(roleServer), homeModule, rightsModule(serverRights), serverModule,
		servingControllerModule, kusciaModule, webhookModule, installedModule)
}

func runDev(ctx context.Context, s settings.Settings) error {
	if err := checkIdentities(s, s.InstallGuard); err != nil {
		return err
	}
	return runEngine(ctx, withOwnStore(s), fx.Supply(roleDev), packageStoreModule, homeModule,
		rightsModule(serverRights, centreRights), guardModule, partyModule, serverModule, servingControllerModule,
		rolloutControllersModule, kusciaModule, webhookModule, installedModule)
}

// runWorker serves the engine's queue and the default party's, or only the queues of --party: a party's worker has no
// credentials for the home cluster.
func runWorker(ctx context.Context, s settings.Settings) error {
	if len(s.Parties) > 0 {
		return runEngine(ctx, s, fx.Supply(roleParty), partyModule, healthModule)
	}
	return runEngine(ctx, s, fx.Supply(roleWorker), homeModule, rightsModule(centreRights), partyModule,
		rolloutControllersModule, healthModule)
}

// runEngine runs these modules until the context ends or one of them fails.
func runEngine(ctx context.Context, s settings.Settings, modules ...fx.Option) error {
	log, err := newLogger(s)
	if err != nil {
		return err
	}
	slog.SetDefault(log)
	lowerGCPercent()
	limitMemory("/sys/fs/cgroup/memory.max")
	engine := fx.New(
		fx.NopLogger,
		fx.Supply(s, log),
		fx.Provide(newRegistry, fx.Annotate(worker.NewMetricsHandler, fx.From(new(*prometheus.Registry))),
			newTracing, newTemporal, newAccount, newRESTConfig, kube.NewClients,
			newFleetOptions, newVersions, newFailures, newGuard),
		fx.Options(modules...),
		fx.StopTimeout(s.ShutdownTimeout),
	)
	if err := engine.Err(); err != nil {
		return dig.RootCause(err) // without fx's description of the dependency graph
	}
	start, cancel := context.WithTimeout(ctx, engine.StartTimeout())
	defer cancel()
	if err := engine.Start(start); err != nil {
		return err
	}
	go releaseMemoryAfterBursts(ctx)
	return waitForEnd(ctx, engine, log)
}

// inBackground calls a function when the process has started. Its context ends when the process stops.
func inBackground(lc fx.Lifecycle, run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	lc.Append(fx.StartStopHook(func() { go run(ctx) }, cancel))
}

func waitForEnd(ctx context.Context, engine *fx.App, log *slog.Logger) error {
	code := 0
	select {
	case <-ctx.Done():
		log.Info("shutting down: waiting for running work")
	case end := <-engine.Wait():
		code = end.ExitCode
	}
	stop, cancel := context.WithTimeout(context.Background(), engine.StopTimeout())
	defer cancel()
	if err := engine.Stop(stop); err != nil {
		return fmt.Errorf("shutdown timed out: %w", err)
	}
	if code != 0 {
		return &app.ExitError{Code: code}
	}
	return nil
}

func newLogger(s settings.Settings) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.LogLevel)); err != nil {
		return nil, err
	}
	options := &slog.HandlerOptions{Level: level}
	if s.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, options)), nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options)), nil
}

func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

const (
	// burstCheckInterval is the interval of checks for the end of a burst of work.
	burstCheckInterval = 30 * time.Second
	// burstBytes is the minimum of bytes allocated in an interval that counts as work.
	burstBytes = 32 << 20
	// allocatedMetric is the metric of all bytes ever allocated (https://pkg.go.dev/runtime/metrics).
	allocatedMetric = "/gc/heap/allocs:bytes"
	// gcPercent is the GC percent: how much garbage may accumulate before a collection, in percent of the live heap
	// (the runtime's default is 100). With 80, a burst of starts leaves a worker with 10 % less memory and costs 5 %
	// more CPU.
	gcPercent = 80
)

// lowerGCPercent lowers the GC percent, unless GOGC is set.
func lowerGCPercent() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// memoryShare is the share of a container's memory limit, in percent, from which on garbage is collected whenever
// memory is needed: garbage never ends a process whose live memory fits.
const memoryShare = 85

// limitMemory sets the limit for the runtime from the file with the memory limit of the container (cgroup v2), unless
// GOMEMLIMIT is set. Without such a file, or without a limit in it, there is none.
func limitMemory(path string) {
	text, err := os.ReadFile(path)
	if err != nil || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if most, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && most > 0 {
		debug.SetMemoryLimit(most / 100 * memoryShare)
	}
}

// burst detects the end of a burst of work from the allocated bytes.
type burst struct {
	last   uint64
	worked bool
}

// ended reports whether there was a burst and the last interval was quiet. total is the number of bytes ever allocated.
func (b *burst) ended(total uint64) bool {
	quiet := total-b.last < burstBytes
	b.last = total
	over := quiet && b.worked
	b.worked = !quiet
	return over
}

// releaseMemoryAfterBursts returns memory to the operating system after each burst of work. Without it, the runtime
// would keep the memory while releases wait for days and allocate nothing.
func releaseMemoryAfterBursts(ctx context.Context) {
	look := time.NewTicker(burstCheckInterval)
	defer look.Stop()
	var b burst
	sample := []metrics.Sample{{Name: allocatedMetric}}
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		metrics.Read(sample)
		if b.ended(sample[0].Value.Uint64()) {
			debug.FreeOSMemory()
		}
	}
}

// tracing sends spans of API requests, activities and their Kubernetes requests to a collector (--trace-endpoint).
// Without a collector it does nothing.
type tracing struct {
	provider trace.TracerProvider
}

// traceTimeout bounds one export of spans. An unreachable collector only costs memory for the queued spans.
const traceTimeout = 3 * time.Second

func newTracing(lc fx.Lifecycle, s settings.Settings, log *slog.Logger) (*tracing, error) {
	if s.TraceEndpoint == "" {
		return &tracing{}, nil
	}
	exporter, err := otlptracehttp.New(context.Background(),
		otlptracehttp.WithEndpointURL(strings.TrimSuffix(s.TraceEndpoint, "/")+"/v1/traces"),
		otlptracehttp.WithTimeout(traceTimeout), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}))
	if err != nil {
		return nil, fmt.Errorf("trace-endpoint: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("cannot send spans to the collector", "endpoint", s.TraceEndpoint, "error", err)
	}))
	about := resource.NewSchemaless(attribute.String("service.name", "slipway"),
		attribute.String("service.version", version.This().Version),
		attribute.String("service.instance.id", identity()), attribute.String("service.namespace", s.Namespace))
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(float64(s.TraceSampleRatio)))))
	lc.Append(fx.StopHook(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, traceTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("cannot send the last spans to the collector", "error", err)
		}
	}))
	return &tracing{provider: provider}, nil
}

// interceptors make Temporal's clients and workers propagate the trace of a request to its workflows and activities.
func (t *tracing) interceptors() ([]interceptor.ClientInterceptor, error) {
	if t.provider == nil {
		return nil, nil
	}
	traced, err := opentelemetry.NewTracingInterceptor(opentelemetry.TracerOptions{Tracer: t.provider.Tracer("slipway"),
		DisableQueryTracing: true, AllowInvalidParentSpans: true})
	if err != nil {
		return nil, err
	}
	return []interceptor.ClientInterceptor{traced}, nil
}

// handler traces requests of the API, except event streams, which last for hours, and requests outside /api/.
func (t *tracing) handler(h http.Handler) http.Handler {
	if t.provider == nil {
		return h
	}
	return otelhttp.NewHandler(h, "API", otelhttp.WithTracerProvider(t.provider),
		otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithFilter(func(r *http.Request) bool {
			return strings.HasPrefix(r.URL.Path, "/api/") && !strings.HasSuffix(r.URL.Path, "/events")
		}))
}

// transport traces the Kubernetes requests of API requests and activities. Watches are not traced: they belong to
// neither.
func (t *tracing) transport(rt http.RoundTripper) http.RoundTripper {
	if t.provider == nil {
		return rt
	}
	return otelhttp.NewTransport(rt, otelhttp.WithTracerProvider(t.provider),
		otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return "Kubernetes " + r.Method }),
		otelhttp.WithFilter(func(r *http.Request) bool {
			return trace.SpanContextFromContext(r.Context()).IsSampled() && !r.URL.Query().Has("watch")
		}))
}

// newTemporal does not connect: a process that starts before Temporal waits for it and reports that in /readyz.
func newTemporal(s settings.Settings, logger *slog.Logger, metrics client.MetricsHandler,
	traces *tracing) (client.Client, error) {
	traced, err := traces.interceptors()
	if err != nil {
		return nil, err
	}
	options := client.Options{
		HostPort:                s.TemporalAddress,
		Namespace:               s.TemporalNamespace,
		Logger:                  log.NewStructuredLogger(logger.With("from", "temporal")),
		MetricsHandler:          metrics,
		Identity:                identity(),
		Interceptors:            traced,
		WorkerHeartbeatInterval: party.HeartbeatInterval,
		ConnectionOptions: client.ConnectionOptions{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
			backend.RecordRateLimits)}},
	}
	err = link.Apply(link.Options{Address: s.TemporalAddress, TLS: s.TemporalTLS, CAFile: s.TemporalCAFile,
		CertFile: s.TemporalCertFile, KeyFile: s.TemporalKeyFile, ServerName: s.TemporalServerName,
		APIKeyFile: s.TemporalAPIKeyFile, CodecKeyDir: s.TemporalCodecKeyDir,
		CodecRequire: s.CodecRequire, Log: logger}, &options)
	if err != nil {
		return nil, err
	}
	return client.NewLazyClient(options)
}

// identity returns the name of this process in Temporal's lists of workers.
func identity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return fmt.Sprintf("slipway-%s@%s-%d", version.This().Version, host, os.Getpid())
}

func newVersions(temporal client.Client, s settings.Settings) *versions.Reader {
	return versions.NewReader(temporal, s.TemporalNamespace)
}

func newFleetOptions(s settings.Settings, log *slog.Logger, down fx.Shutdowner) worker.Options {
	// Temporal records which binary completed a task. Without a name, the SDK reads the whole binary at each start, for
	// a digest that takes a fifth of a second.
	temporalworker.SetBinaryChecksum(version.This().ID())
	return worker.Options{Namespace: s.TemporalNamespace, Identity: identity(), Build: buildID(s),
		StopTimeout: s.ShutdownTimeout / 2, Log: log, Fatal: func(err error) {
			log.Error("a worker failed", "error", err)
			_ = down.Shutdown(fx.ExitCode(app.ExitFailure))
		}}
}

// buildID returns the build ID with which this process polls.
func buildID(s settings.Settings) string {
	if !s.WorkerVersioning {
		return upgrade.Unversioned
	}
	return worker.ThisBuild(version.This().ID())
}
