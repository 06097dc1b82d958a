package worker

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"

	"slipway.io/slipway/workflows"
)

// metricsHandler shows what the Temporal SDK measures to Prometheus, and what workflows measure by it. Both carry few tags, none of them per workflow.
type metricsHandler struct {
	tags   map[string]string
	shared *sharedMetrics
}

// sharedMetrics holds one vector per metric name and set of tag names.
type sharedMetrics struct {
	mu       sync.Mutex
	registry prometheus.Registerer
	known    map[string]any
}

// NewMetricsHandler registers what the SDK measures with registry.
func NewMetricsHandler(registry prometheus.Registerer) client.MetricsHandler {
	return metricsHandler{shared: &sharedMetrics{registry: registry, known: map[string]any{}}}
}

// WithTags adds tags to everything measured through the handler that it returns.
func (h metricsHandler) WithTags(tags map[string]string) client.MetricsHandler {
	merged := map[string]string{}
	maps.Copy(merged, h.tags)
	for k, v := range tags {
		merged[label(k)] = v
	}
	return metricsHandler{tags: merged, shared: h.shared}
}

// Counter counts events.
func (h metricsHandler) Counter(name string) client.MetricsCounter {
	v := vector(h, "counter", name, func(name string, labels []string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help(name, "Counted by the Temporal SDK.")}, labels)
	})
	if v == nil {
		return client.MetricsNopHandler.Counter(name)
	}
	return counterFunc(func(n int64) { v.With(h.tags).Add(float64(n)) })
}

// Gauge holds a level.
func (h metricsHandler) Gauge(name string) client.MetricsGauge {
	v := vector(h, "gauge", name, func(name string, labels []string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: "Measured by the Temporal SDK."}, labels)
	})
	if v == nil {
		return client.MetricsNopHandler.Gauge(name)
	}
	return gaugeFunc(func(x float64) { v.With(h.tags).Set(x) })
}

// Timer observes durations, in seconds.
func (h metricsHandler) Timer(name string) client.MetricsTimer {
	v := vector(h, "timer", name, func(name string, labels []string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name + "_seconds", Help: help(name, "Timed by the Temporal SDK."), Buckets: buckets(name)}, labels)
	})
	if v == nil {
		return client.MetricsNopHandler.Timer(name)
	}
	return timerFunc(func(d time.Duration) { v.With(h.tags).Observe(d.Seconds()) })
}

// ours are the metrics of releases, which workflows measure.
var ours = map[string]string{
	workflows.MetricTime:     "How long releases were on their way or waited, without a break, by who the time was spent on. The sums are the ages of releases.",
	workflows.MetricWaits:    "Waits of releases that began, by what they wait for.",
	workflows.MetricCommands: "Commands that people sent to releases, by outcome.",
	workflows.MetricFinished: "Releases that are over, by state.",
}

func help(name, otherwise string) string { return cmp.Or(ours[name], otherwise) }

// buckets are up to a minute for requests, and from a second to seven weeks for releases.
func buckets(name string) []float64 {
	if _, is := ours[name]; is {
		return prometheus.ExponentialBuckets(1, 4, 12)
	}
	return prometheus.ExponentialBuckets(0.001, 4, 9)
}

// vector finds or registers the vector of a name and the handler's tag names; nil when Prometheus refuses it (the same name was first
// used with other tags: one sample stream per name is kept).
func vector[V prometheus.Collector](h metricsHandler, kind, name string, build func(string, []string) V) V {
	s := h.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	labels := slices.Sorted(maps.Keys(h.tags))
	name = label(name)
	key := kind + "|" + name + "|" + strings.Join(labels, ",")
	if v, ok := s.known[key]; ok {
		return v.(V)
	}
	v := build(name, labels)
	if err := s.registry.Register(v); err != nil {
		var none V
		v = none
	}
	s.known[key] = v
	return v
}

// label turns a tag or a metric's name into one that Prometheus takes.
func label(name string) string { return strings.NewReplacer("-", "_", ".", "_").Replace(name) }

type counterFunc func(int64)

func (f counterFunc) Inc(n int64) { f(n) }

type gaugeFunc func(float64)

func (f gaugeFunc) Update(x float64) { f(x) }

type timerFunc func(time.Duration)

func (f timerFunc) Record(d time.Duration) { f(d) }
