package traffic_test

import (
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/shares"
)

func replaceSpace(text, namespace string) string { return strings.ReplaceAll(text, "SPACE", namespace) }

// look reads all objects that route requests.
func (b *bench) look() shares.Objects {
	b.t.Helper()
	list := func(gvr schema.GroupVersionResource) []map[string]any {
		all, err := b.objects.Resource(gvr).Namespace(b.namespace).List(b.t.Context(), metav1.ListOptions{})
		require.NoError(b.t, err)
		var out []map[string]any
		require.NoError(b.t, all.EachListItem(func(o runtime.Object) error {
			out = append(out, o.(*unstructured.Unstructured).Object)
			return nil
		}))
		return out
	}
	pods, err := b.kube.CoreV1().Pods(b.namespace).List(b.t.Context(), metav1.ListOptions{})
	require.NoError(b.t, err)
	o := shares.Objects{
		Services: list(gvrs["Service"]), Ingresses: list(gvrs["Ingress"]), HTTPRoutes: list(gvrs["HTTPRoute"]),
		Custom: list(gvrs["VirtualService"]),
		EndpointSlices: list(schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1",
			Resource: "endpointslices"}),
		Revisions: map[string]string{},
	}
	for _, p := range pods.Items {
		o.Revisions[p.Name] = p.Labels["pod-template-hash"]
	}
	return o
}

// requireSplit checks where requests go: with a weight, that share of them goes to the canary; with matches, exactly
// the matching ones do.
func (b *bench) requireSplit(w way, asks strategy.Traffic) {
	b.t.Helper()
	ordinary, matching := 0.0, 0.0
	if asks.Weight != nil {
		ordinary = float64(*asks.Weight) / 100
		matching = ordinary
	} else {
		matching = 1
	}
	path := "/order"
	for _, c := range []struct {
		probe shares.Probe
		want  float64
	}{
		{shares.Probe{Host: "shop.example", Path: path}, ordinary},
		{shares.Probe{Host: "shop.example", Path: path, Headers: map[string]string{"X-User": "tester"}}, matching},
	} {
		var split shares.Split
		var err error
		require.Eventually(b.t, func() bool { // the EndpointSlices follow the Services
			split, err = shares.Of(b.look(), w.routing, c.probe)
			return err == nil && split.Unreachable == 0 && near(split.ByRevision[canary], c.want) &&
				near(split.ByRevision[stable], 1-c.want)
		}, 10*time.Second, tick, "want %v of the requests at the canary", c.want)
	}
}

func near(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }
