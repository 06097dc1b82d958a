package bench

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/harness"
)

// served are the requests that an API server has answered so far, from all clients, by verb and resource: "PATCH
// deployments/status".
type served map[string]float64

// requestsServed reads them from the API server's own metrics.
func requestsServed(t *testing.T, e *harness.Engine) served {
	t.Helper()
	raw, err := e.Kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(context.Background())
	require.NoError(t, err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(raw))
	require.NoError(t, err)
	counted := served{}
	for _, m := range families["apiserver_request_total"].GetMetric() {
		labels := labelsOf(m)
		what := labels["verb"] + " " + labels["resource"]
		if labels["subresource"] != "" {
			what += "/" + labels["subresource"]
		}
		if labels["dry_run"] != "" {
			what += " (dry run)"
		}
		counted[what] += m.GetCounter().GetValue()
	}
	return counted
}

func labelsOf(m *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}

// since returns the requests after before.
func (s served) since(before served) served {
	added := served{}
	for what, n := range s {
		if n -= before[what]; n > 0 {
			added[what] = n
		}
	}
	return added
}

// printServed prints the requests of two runs to the API server per changed object, the most frequent first.
func printServed(n int, plain, ours served) {
	all := maps.Clone(plain)
	for what, count := range ours {
		all[what] = max(all[what], count)
	}
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return int(all[b] - all[a]) })
	fmt.Printf("  requests that the API server answered, from all clients, per object\n")
	for _, what := range names {
		if all[what] < float64(n) { // less than one each
			break
		}
		fmt.Printf("    %-44s %8.1f %8.1f\n", what, plain[what]/float64(n), ours[what]/float64(n))
	}
}
