package traffic_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/test/shares"
)

func canaryIngress(t *testing.T, annotations traffic.Object) traffic.Object {
	o := object(t, `
metadata: {name: order-canary}
spec: {rules: [{host: shop.example, http: {paths: [{path: /order, pathType: Prefix, backend: {service: {name: order-canary}}}]}}]}`)
	o["metadata"].(traffic.Object)["annotations"] = annotations
	return o
}

// TestSharesThroughAnIngress evaluates the canary annotations as ingress-nginx does: header, then cookie, then weight.
func TestSharesThroughAnIngress(t *testing.T) {
	t.Parallel()
	const p = "nginx.ingress.kubernetes.io/"
	by := func(pairs ...string) traffic.Object {
		out := traffic.Object{p + "canary": "true"}
		for i := 0; i+1 < len(pairs); i += 2 {
			out[p+pairs[i]] = pairs[i+1]
		}
		return out
	}
	header := func(v string) shares.Probe { return shares.Probe{Headers: map[string]string{"U": v}} }
	cases := map[string]struct {
		reason      string
		annotations traffic.Object
		probe       shares.Probe
		empty       string
		want        float64
		nowhere     float64
	}{
		"no canary": {reason: "annotations without canary mean nothing",
			annotations: traffic.Object{p + "canary-weight": "50"}},
		"weight": {reason: "its part", annotations: by("canary-weight", "20"), want: 0.2},
		"total": {reason: "its part of the total",
			annotations: by("canary-weight", "20", "canary-weight-total", "200"), want: 0.1},
		"header met": {reason: "the header comes first",
			annotations: by("canary-by-header", "u", "canary-by-header-value", "t"), probe: header("t"), want: 1},
		"header not met": {reason: "another value decides nothing: the weight does",
			annotations: by("canary-by-header", "u", "canary-by-header-value", "t", "canary-weight", "5"),
			probe:       header("x"), want: 0.05},
		"pattern": {reason: "found anywhere",
			annotations: by("canary-by-header", "u", "canary-by-header-pattern", "es"), probe: header("test"), want: 1},
		"never": {reason: "without a value, always and never decide",
			annotations: by("canary-by-header", "u", "canary-weight", "50"), probe: header("never")},
		"cookie": {reason: "always and never decide", annotations: by("canary-by-cookie", "beta"),
			probe: shares.Probe{Cookies: map[string]string{"beta": "always"}}, want: 1},
		"canary is empty": {reason: "its part reaches no endpoint", annotations: by("canary-weight", "20"),
			empty: "order-canary", nowhere: 0.2},
		"stable is empty": {reason: "the canary is used only if the main backend has endpoints",
			annotations: by("canary-weight", "100"), empty: "order", nowhere: 1},
		"elsewhere": {reason: "the canary has no rule for it", annotations: by("canary-weight", "50"),
			probe: shares.Probe{Host: "shop.example", Path: "/cart"}},
		"query of its own": {reason: "class mse", annotations: traffic.Object{p + "canary": "true",
			"mse.ingress.kubernetes.io/canary-by-query": "b", "mse.ingress.kubernetes.io/canary-by-query-value": "1"},
			probe: shares.Probe{Query: map[string]string{"b": "1"}}, want: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := world(nil)
			o.Ingresses = []traffic.Object{object(t, `
metadata: {name: order}
spec: {rules: [{host: shop.example, http: {paths: [
  {path: /order, pathType: Prefix, backend: {service: {name: order}}}, {path: /cart, pathType: Prefix, backend: {service: {name: cart}}}]}}]}`), canaryIngress(t, tc.annotations)}
			for _, slice := range o.EndpointSlices {
				if slice["metadata"].(traffic.Object)["labels"].(traffic.Object)["kubernetes.io/service-name"] == tc.empty {
					slice["endpoints"] = []any{traffic.Object{"conditions": traffic.Object{"ready": false},
						"targetRef": traffic.Object{"name": "x"}}}
				}
			}
			got, err := shares.Of(o, strategy.Routing{Service: "order",
				Ingress: &strategy.IngressRef{Class: "nginx", Name: "order"}}, tc.probe)
			require.NoError(t, err)
			require.InDelta(t, tc.want, got.ByRevision["new"], 1e-9, tc.reason)
			require.InDelta(t, tc.nowhere, got.Unreachable, 1e-9, tc.reason)
		})
	}
}

// TestSharesThroughAService divides among all endpoints when traffic follows the pods.
func TestSharesThroughAService(t *testing.T) {
	t.Parallel()
	o := world(nil)
	o.EndpointSlices = append(o.EndpointSlices, object(t, `
metadata: {labels: {kubernetes.io/service-name: order}}
endpoints: [{targetRef: {name: order-canary-1}}, {targetRef: {name: order-1}}, {addresses: [10.0.0.9]}]`))
	got, err := shares.Of(o, strategy.Routing{Service: "order"}, shares.Probe{})
	require.NoError(t, err)
	require.InDelta(t, 1.0/3, got.ByRevision["old"], 1e-9, "a pod in two slices is one endpoint")
	require.InDelta(t, 1.0/3, got.ByRevision["new"], 1e-9, "an endpoint without conditions is ready")
	require.InDelta(t, 1.0/3, got.ByRevision[""], 1e-9)
	got, err = shares.Of(o, strategy.Routing{Service: "missing"}, shares.Probe{})
	require.NoError(t, err)
	require.InDelta(t, 1, got.Unreachable, 1e-9)
}

func TestSharesOf_Fails_WhenRouteOrRuleIsMissing(t *testing.T) {
	t.Parallel()
	_, err := shares.Of(world(object(t, usersRoute)), strategy.Routing{Service: "order", HTTPRoute: "order"},
		on("/nowhere"))
	require.ErrorContains(t, err, "HTTPRoute order has no rule for a request to /nowhere")
	_, err = shares.Of(world(nil), strategy.Routing{Service: "order", HTTPRoute: "order"}, on("/"))
	require.ErrorContains(t, err, "there is no HTTPRoute order")
}
