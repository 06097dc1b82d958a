package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/interceptor"
	"go.uber.org/fx"

	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/cli/version"
)

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
	traced, err := opentelemetry.NewTracingInterceptor(
		opentelemetry.TracerOptions{Tracer: t.provider.Tracer("slipway"), DisableQueryTracing: true,
			AllowInvalidParentSpans: true})
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
