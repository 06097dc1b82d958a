package e2e

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// collector receives spans by OTLP over HTTP, like an OpenTelemetry collector.
type collector struct {
	mu    sync.Mutex
	spans []*tracepb.Span
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		body, _ = gzip.NewReader(r.Body)
	}
	raw, err := io.ReadAll(body)
	var sent collectorpb.ExportTraceServiceRequest
	if r.URL.Path != "/v1/traces" || err != nil || proto.Unmarshal(raw, &sent) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range sent.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
}

// spansInTraceOf returns the names of the spans in the trace of the first span with this name.
func (c *collector) spansInTraceOf(name string) (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var trace []byte
	for _, s := range c.spans {
		if s.Name == name {
			trace = s.TraceId
			break
		}
	}
	for _, s := range c.spans {
		if trace != nil && string(s.TraceId) == string(trace) {
			names = append(names, s.Name)
		}
	}
	return names
}

// The request that starts a release, its workflow, its activities and their Kubernetes requests are one trace, also if
// server and worker are two processes.
func TestTrace_ConnectsRequestWorkflowAndActivities(t *testing.T) {
	t.Parallel()
	c := &collector{}
	listener := httptest.NewServer(c)
	t.Cleanup(listener.Close)
	e := harness.Start(t, harness.Options{SeparateWorker: true, Args: []string{"--trace-endpoint", listener.URL}})
	r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.NoProvider), nil)
	r.waitPaused(1)
	r.approveAll(1)
	r.requirePromoted()
	const start = "POST /api/v1/rollouts"
	for _, want := range []string{"RunWorkflow:Rollout", "RunActivity:rollout.Leg", "Kubernetes PATCH"} {
		require.Eventually(t, func() bool {
			return strings.Contains(strings.Join(c.spansInTraceOf(start), "\n"), want)
		}, harness.Patience, harness.Tick, "%s is in the trace of %s", want, start)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		require.NotContains(t, s.Name, "/events", "event streams, which last for hours, have no span")
	}
}

// An unreachable collector loses the spans, but does not affect releases.
func TestTrace_DoesNotAffectReleases_WhenCollectorIsUnreachable(t *testing.T) {
	t.Parallel()
	e := harness.Start(t, harness.Options{Args: []string{"--trace-endpoint", "http://127.0.0.1:1"}})
	r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.NoProvider), nil)
	r.waitPaused(1)
	r.approveAll(1)
	r.requirePromoted()
	require.NoError(t, e.Processes[0].Stop(), "the engine shuts down cleanly")
	require.Contains(t, e.Processes[0].Output(), "cannot send spans to the collector")
}
