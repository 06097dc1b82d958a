package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.temporal.io/sdk/client"

	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/workflows"
)

// metricsHandler exports the metrics of the Temporal SDK and of workflows to Prometheus. They have few tags, none of
// them per workflow.
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

// NewMetricsHandler returns a handler that registers the SDK's metrics with registry.
func NewMetricsHandler(registry prometheus.Registerer) client.MetricsHandler {
	return metricsHandler{shared: &sharedMetrics{registry: registry, known: map[string]any{}}}
}

// WithTags returns a handler that adds these tags to all its metrics.
func (h metricsHandler) WithTags(tags map[string]string) client.MetricsHandler {
	merged := map[string]string{}
	maps.Copy(merged, h.tags)
	for k, v := range tags {
		merged[label(k)] = v
	}
	return metricsHandler{tags: merged, shared: h.shared}
}

// withReleaseLabels returns the handler for this metric. Release metrics have only their own labels: the SDK's are not
// about releases, and its namespace (Temporal's) would conflict with the one that Prometheus adds.
func (h metricsHandler) withReleaseLabels(name string) metricsHandler {
	known, is := releaseSeries[name]
	if is {
		tags := maps.Clone(h.tags)
		maps.DeleteFunc(tags, func(label, _ string) bool { _, keep := known[0][label]; return !keep })
		h.tags = tags
	}
	return h
}

// releaseSeries are the series of the release metrics.
var releaseSeries = workflows.MetricSeries()

// exportReleaseSeries exports every series of the release metrics, with the value 0.
func exportReleaseSeries(metrics client.MetricsHandler) {
	for name := range releaseSeries {
		exportSeries(metrics, name)
	}
}

// exportSeries exports every series of one release metric.
func exportSeries(metrics client.MetricsHandler, name string) {
	for _, tags := range releaseSeries[name] {
		if tagged := metrics.WithTags(tags); name == workflows.MetricTime {
			tagged.Timer(name)
		} else {
			tagged.Counter(name)
		}
	}
}

// Counter counts events.
func (h metricsHandler) Counter(name string) client.MetricsCounter {
	h = h.withReleaseLabels(name)
	v := vector(h, "counter", name, func(name string, labels []string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name,
			Help: help(name, "Counted by the Temporal SDK.")}, labels)
	})
	if v == nil {
		return client.MetricsNopHandler.Counter(name)
	}
	series := v.With(h.tags) // exported from now on, with 0
	return counterFunc(func(n int64) { series.Add(float64(n)) })
}

// Gauge measures a level.
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
	h = h.withReleaseLabels(name)
	v := vector(h, "timer", name, func(name string, labels []string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name + "_seconds",
			Help: help(name, "Timed by the Temporal SDK."), Buckets: buckets(name)}, labels)
	})
	if v == nil {
		return client.MetricsNopHandler.Timer(name)
	}
	series := v.With(h.tags)
	return timerFunc(func(d time.Duration) { series.Observe(d.Seconds()) })
}

// releaseHelp are the help texts of the release metrics, which workflows emit.
var releaseHelp = map[string]string{
	workflows.MetricTime: "How long releases were in progress or waited without interruption, by what the time was " +
		"spent on. The sums are the ages of releases.",
	workflows.MetricWaits:        "Waits of releases that began, by what they wait for.",
	workflows.MetricRestorations: "Changes by other clients that a release reverted.",
	workflows.MetricCommands:     "Commands that users sent to releases, by outcome.",
	workflows.MetricFinished:     "Releases that have ended, by state.",
	workload.MetricBlocked:       "Waits of releases for pods that are not created or do not start, by cause.",
}

func help(name, otherwise string) string { return cmp.Or(releaseHelp[name], otherwise) }

// buckets range up to a minute for requests, and from a second to seven weeks for releases.
func buckets(name string) []float64 {
	if _, is := releaseHelp[name]; is {
		return prometheus.ExponentialBuckets(1, 4, 12)
	}
	return prometheus.ExponentialBuckets(0.001, 4, 9)
}

// vector finds or registers the vector of a name and the handler's tag names. It is nil if Prometheus refuses it
// because the name was first used with other tags: the first set of tags per name is kept.
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

// label turns the name of a tag or metric into a valid Prometheus name.
func label(name string) string { return strings.NewReplacer("-", "_", ".", "_").Replace(name) }

type counterFunc func(int64)

func (f counterFunc) Inc(n int64) { f(n) }

type gaugeFunc func(float64)

func (f gaugeFunc) Update(x float64) { f(x) }

type timerFunc func(time.Duration)

func (f timerFunc) Record(d time.Duration) { f(d) }

// probeTimeout bounds the check of one request.
const probeTimeout = 3 * time.Second

// HealthHandler serves /healthz, /readyz and /metrics for a process that serves nothing else. check names its one
// dependency, and probe returns an error while that is unavailable.
func HealthHandler(check string, probe func(ctx context.Context) error, registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
		defer cancel()
		answerReady(w, check, probe(ctx))
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

func answerReady(w http.ResponseWriter, check string, unavailable error) {
	type answer struct {
		Name    string `json:"name"`
		OK      bool   `json:"ok"`
		Message string `json:"message,omitempty"`
	}
	a := answer{Name: check, OK: unavailable == nil}
	w.Header().Set("Content-Type", "application/json")
	if unavailable != nil {
		a.Message = unavailable.Error()
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(struct {
		Ready  bool     `json:"ready"`
		Checks []answer `json:"checks"`
	}{a.OK, []answer{a}})
}
