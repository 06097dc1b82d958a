package traffic_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/test/shares"
)

var pair = traffic.ServicePair{Stable: "order", Canary: "order-canary"}

func object(t testing.TB, text string) traffic.Object {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	var o map[string]any
	require.NoError(t, utiljson.Unmarshal(raw, &o))
	return o
}

func asJSON(t testing.TB, value any) string {
	t.Helper()
	raw, err := json.Marshal(value)
	require.NoError(t, err)
	return string(raw)
}

func weight(n int32) strategy.Traffic { return strategy.Traffic{Weight: &n} }

func headerIs(name, value string) strategy.Match {
	return strategy.Match{Headers: []strategy.ValueMatch{{Type: strategy.MatchExact, Name: name, Value: value}}}
}

func pathIs(kind strategy.MatchType, value string) strategy.Match {
	return strategy.Match{Path: &strategy.PathMatch{Type: kind, Value: value}}
}

func matches(m ...strategy.Match) strategy.Traffic { return strategy.Traffic{Matches: m} }

const usersRoute = `
metadata: {name: order, namespace: shop, resourceVersion: "7"}
spec:
  rules:
  - name: orders
    matches: [{path: {type: PathPrefix, value: /order}}]
    filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-from, value: gate}]}}]
    backendRefs: [{group: "", kind: Service, name: order, port: 80, weight: 7}]
    timeouts: {request: 3s}
  - matches: [{path: {type: PathPrefix, value: /old}}]
    filters: [{type: RequestRedirect, requestRedirect: {statusCode: 301}}]
  - matches: [{path: {type: PathPrefix, value: /both}}]
    backendRefs: [{kind: Service, name: order, port: 80, weight: 3}, {kind: Service, name: legacy, port: 80, weight: 1}]
  - matches: [{path: {type: PathPrefix, value: /cart}}]
    backendRefs: [{kind: Service, name: cart, port: 80}]
`

// helper is a test of the testing package or of rapid.
type helper interface {
	require.TestingT
	Helper()
}

// release is a route under a release: each ask is written as the activities do.
type release struct {
	t    helper
	live traffic.Object
}

var hand = traffic.Claimant{Claim: "rollout/default/shop/order@run-1"}

func (r *release) ask(asks strategy.Traffic) {
	r.t.Helper()
	b, err := traffic.ReadBorrowed("HTTPRoute shop/order", r.live, traffic.BorrowsRules)
	require.NoError(r.t, err)
	w, err := b.PlanWrite(hand, traffic.HTTPRoute(pair, asks))
	require.NoError(r.t, err)
	if w == nil {
		return
	}
	after := jsonpatch.Apply(r.live, w.Changes)
	r.live = jsonpatch.Apply(r.live, w.Stamp(traffic.Digest(after, w.Paths())))
}

func (r *release) finish() {
	r.t.Helper()
	b, err := traffic.ReadBorrowed("HTTPRoute shop/order", r.live, traffic.BorrowsRules)
	require.NoError(r.t, err)
	w, err := b.PlanRestore(hand)
	require.NoError(r.t, err)
	if w != nil {
		r.live = jsonpatch.Apply(r.live, w.Ops())
	}
}

// share returns the canary's part of requests like the probe.
func (r *release) share(probe shares.Probe) float64 {
	r.t.Helper()
	split, err := shares.Of(world(r.live), strategy.Routing{Service: "order", HTTPRoute: "order"}, probe)
	require.NoError(r.t, err)
	require.Zero(r.t, split.Unreachable)
	return split.ByRevision["new"]
}

func world(route traffic.Object) shares.Objects {
	o := shares.Objects{HTTPRoutes: []traffic.Object{route},
		Revisions: map[string]string{"order-1": "old", "order-canary-1": "new", "legacy-1": "legacy", "cart-1": "cart"}}
	for _, name := range []string{"order", "order-canary", "legacy", "cart"} {
		o.Services = append(o.Services, traffic.Object{"metadata": traffic.Object{"name": name}})
		o.EndpointSlices = append(o.EndpointSlices, traffic.Object{
			"metadata": traffic.Object{"labels": traffic.Object{"kubernetes.io/service-name": name}},
			"endpoints": []any{traffic.Object{"conditions": traffic.Object{"ready": true},
				"targetRef": traffic.Object{"name": name + "-1"}}},
		})
	}
	return o
}

func on(path string, headers ...string) shares.Probe {
	p := shares.Probe{Path: path, Headers: map[string]string{}}
	for i := 0; i+1 < len(headers); i += 2 {
		p.Headers[headers[i]] = headers[i+1]
	}
	return p
}

// TestHTTPRoute_KeepsUsersRules_WhereReferenceDamagesThem covers five cases in which the reference implementation
// damages a route: the user's rules survive, and each step's traffic is what that step requests, after any earlier
// step.
func TestHTTPRoute_KeepsUsersRules_WhereReferenceDamagesThem(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T) *release { return &release{t, object(t, usersRoute)} }
	original := object(t, usersRoute)
	t.Run("matches after a weight keep the user's rules", func(t *testing.T) {
		t.Parallel()
		r := start(t)
		r.ask(weight(20))
		require.InDelta(t, 0.2, r.share(on("/order")), 1e-9)
		r.ask(matches(headerIs("x-user", "tester")))
		require.Zero(t, r.share(on("/order")), "ordinary requests go to stable again")
		require.InDelta(t, 1, r.share(on("/order", "X-User", "tester")), 1e-9)
		r.finish()
		require.Equal(t, original, r.live)
	})
	t.Run("a weight after matches leaves no rule for the matches", func(t *testing.T) {
		t.Parallel()
		r := start(t)
		r.ask(matches(headerIs("x-user", "tester")))
		r.ask(weight(20))
		require.InDelta(t, 0.2, r.share(on("/order", "x-user", "tester")), 1e-9, "the header no longer decides")
		require.Len(t, r.live["spec"].(map[string]any)["rules"], 4)
		r.finish()
		require.Equal(t, original, r.live)
	})
	t.Run("a match by path together with a match by header", func(t *testing.T) {
		t.Parallel()
		r := start(t)
		r.ask(matches(pathIs(strategy.MatchExact, "/order/new"), headerIs("x-user", "tester")))
		require.InDelta(t, 1, r.share(on("/order/new")), 1e-9)
		require.InDelta(t, 1, r.share(on("/order", "x-user", "tester")), 1e-9)
		require.InDelta(t, 1, r.share(on("/both", "x-user", "tester")), 1e-9, "every rule of the Service is narrowed")
		require.Zero(t, r.share(on("/order")), "the header is required")
		require.Zero(t, r.share(on("/both")))
		r.finish()
		require.Equal(t, original, r.live)
	})
	t.Run("a rule that only redirects", func(t *testing.T) {
		t.Parallel()
		for _, asks := range []strategy.Traffic{weight(20), weight(100), matches(headerIs("a", "b"))} {
			r := start(t)
			r.ask(asks)
			require.Contains(t, asJSON(t, r.live),
				`"filters":[{"requestRedirect":{"statusCode":301},"type":"RequestRedirect"}]`)
			r.finish()
			require.Equal(t, original, r.live)
		}
	})
	t.Run("an original weight of 7", func(t *testing.T) {
		t.Parallel()
		r := start(t)
		r.ask(weight(20))
		r.ask(weight(50))
		r.finish()
		require.Equal(t, original, r.live)
	})
}

// TestHTTPRouteRules covers how rules are changed.
func TestHTTPRouteRules(t *testing.T) {
	t.Parallel()
	modifier := &strategy.HeaderModifier{Set: []strategy.Header{{Name: "x-tag", Value: "gray"}},
		Remove: []string{"X-From"}}
	cases := map[string]struct {
		reason string
		rules  string
		asks   strategy.Traffic
		want   string
	}{
		"one backend": {
			reason: "a single backend gets everything at any weight, so the weights are percentages",
			rules:  `[{backendRefs: [{name: order, port: 80, weight: 7}]}]`, asks: weight(20),
			want: `[{backendRefs: [{name: order, port: 80, weight: 80}, {name: order-canary, port: 80, weight: 20}]}]`,
		},
		"other backends keep their share": {
			reason: "order has three quarters, and the canary gets a fifth of these",
			rules:  `[{backendRefs: [{name: order, weight: 3}, {name: legacy, weight: 1}]}]`, asks: weight(20),
			want: `[{backendRefs: [{name: order, weight: 12}, {name: order-canary, weight: 3}, {name: legacy, weight: 5}]}]`,
		},
		"another namespace": {
			reason: "a Service of the same name in another namespace is a different one",
			rules:  `[{backendRefs: [{name: order, namespace: other}]}, {backendRefs: [{name: order}]}]`,
			asks:   weight(100),
			want:   `[{backendRefs: [{name: order, namespace: other}]}, {backendRefs: [{name: order, weight: 0}, {name: order-canary, weight: 100}]}]`,
		},
		"headers by weight": {
			reason: "only requests to the canary get the headers, so they are set at its backend",
			rules:  `[{backendRefs: [{name: order}]}]`,
			asks:   strategy.Traffic{Weight: weight(10).Weight, RequestHeaderModifier: modifier},
			want: `[{backendRefs: [{name: order, weight: 90}, {name: order-canary, weight: 10, filters: [{type: RequestHeaderModifier,
				requestHeaderModifier: {set: [{name: x-tag, value: gray}], remove: [X-From]}}]}]}]`,
		},
		"headers by matches": {
			reason: "only one such filter is allowed: the rule's own is merged with the step's, which is applied last",
			rules: `[{name: a, filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-from, value: gate}, {name: x-y, value: z}]}}],
				backendRefs: [{name: order, weight: 7}]}]`,
			asks: strategy.Traffic{Matches: []strategy.Match{headerIs("u", "1")}, RequestHeaderModifier: modifier},
			want: `[{filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-y, value: z}, {name: x-tag, value: gray}], remove: [X-From]}}],
				matches: [{path: {type: PathPrefix, value: /}, headers: [{type: Exact, name: u, value: "1"}]}], backendRefs: [{name: order-canary, weight: 1}]},
				{name: a, filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-from, value: gate}, {name: x-y, value: z}]}}],
				backendRefs: [{name: order, weight: 7}]}]`,
		},
		"and, or": {
			reason: "within a match all must hold, one of several matches is enough; the rule's own header must hold " +
				"as well",
			rules: `[{matches: [{path: {type: PathPrefix, value: /a}, headers: [{name: H, value: "1"}]}], backendRefs: [{name: order}]}]`,
			asks: matches(strategy.Match{Path: &strategy.PathMatch{Type: strategy.MatchPathPrefix, Value: "/a/b"},
				QueryParams: []strategy.ValueMatch{{Type: strategy.MatchExact, Name: "q", Value: "1"}}},
				headerIs("h", "1"), headerIs("h", "2")),
			want: `[{matches: [{path: {type: PathPrefix, value: /a/b}, headers: [{name: H, value: "1"}], queryParams: [{type: Exact, name: q, value: "1"}]},
				{path: {type: PathPrefix, value: /a}, headers: [{name: H, value: "1"}]}], backendRefs: [{name: order-canary, weight: 1}]},
				{matches: [{path: {type: PathPrefix, value: /a}, headers: [{name: H, value: "1"}]}], backendRefs: [{name: order}]}]`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			route := object(t, "metadata: {name: order, namespace: shop}\nspec:\n  rules: "+tc.rules)
			got, err := traffic.HTTPRouteRules(route, pair, tc.asks)
			require.NoError(t, err)
			want := object(t, "rules: "+tc.want)
			require.Equal(t, want["rules"], got, tc.reason)
			requireValid(t, got)
		})
	}
}

// requireValid decodes rules into the types of the Gateway API, which have every legal field.
func requireValid(t testing.TB, rules []any) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(asJSON(t, rules)))
	decoder.DisallowUnknownFields()
	var typed []gatewayv1.HTTPRouteRule
	require.NoError(t, decoder.Decode(&typed))
}

// Without a canary Service, the end of a blue-green, which sends everything to the new version, leaves the route
// unchanged.
func TestHTTPRouteRules_Unchanged_WithoutCanaryServiceAtFullWeight(t *testing.T) {
	t.Parallel()
	route := object(t, "metadata: {name: order, namespace: shop}\nspec:\n  rules: [{backendRefs: [{name: order, "+
		"weight: 7}]}]")
	got, err := traffic.HTTPRouteRules(route, traffic.ServicePair{Stable: "order", Canary: "order"}, weight(100))
	require.NoError(t, err, "a release that was approved to its end does not fail there")
	require.Equal(t, route["spec"].(map[string]any)["rules"], got)
}

// TestHTTPRouteRules_Refuse_WhatRouteCannotExpress covers what no route can express, or the API server would reject.
func TestHTTPRouteRules_Refuse_WhatRouteCannotExpress(t *testing.T) {
	t.Parallel()
	many := make([]strategy.Match, 65)
	for i := range many {
		many[i] = headerIs("u", strings.Repeat("x", i+1))
	}
	cases := map[string]struct {
		reason, rules string
		pair          traffic.ServicePair
		asks          strategy.Traffic
		text          string
	}{
		"no rule": {"it leads elsewhere", `[{backendRefs: [{name: cart}]}]`, pair, weight(10),
			"has no rule that leads to Service order"},
		"there already": {"the canary backend belongs to this release",
			`[{backendRefs: [{name: order}, {name: order-canary}]}]`, pair, weight(10),
			"leads to Service order-canary already"},
		"path elsewhere": {"no request can meet both",
			`[{matches: [{path: {type: PathPrefix, value: /a}}], backendRefs: [{name: order}]}]`, pair,
			matches(pathIs(strategy.MatchExact, "/b")), "could meet"},
		"two expressions": {"one value has one expression",
			`[{matches: [{path: {type: RegularExpression, value: /a.*}}], backendRefs: [{name: order}]}]`, pair,
			matches(pathIs(strategy.MatchRegularExpression, "/.*b")), "cannot be combined"},
		"matches": {"a rule has 64 matches", `[{backendRefs: [{name: order}]}]`, pair, matches(many...),
			"would have 65 matches, the most is 64"},
		"rules": {"a route has 16 rules", "[" + strings.Repeat(`{backendRefs: [{name: order}]},`, 9) + "]",
			pair, matches(headerIs("a", "b")), "would have 18 rules, the most is 16"},
		"nothing changes": {"both are one Service", `[{backendRefs: [{name: order}]}]`,
			traffic.ServicePair{Stable: "order", Canary: "order"}, weight(10), "changes nothing"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := traffic.HTTPRouteRules(object(t,
				"metadata: {name: order, namespace: shop}\nspec:\n  rules: "+tc.rules), tc.pair, tc.asks)
			var f *failure.Error
			require.ErrorAs(t, err, &f, tc.reason)
			require.Equal(t, failure.Refused, f.Kind)
			require.Contains(t, f.Message, tc.text, tc.reason)
		})
	}
}
