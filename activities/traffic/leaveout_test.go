package traffic_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

const otherRuleYAML = `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: other}
spec:
  host: other
  subsets: [{name: base, labels: {version: base}}]
`

// byQuery asks for the requests with a header, or with a query parameter, which ingress-nginx cannot compare.
func byQuery() strategy.Traffic {
	asks := byHeader("x-user", "tester")
	asks.Matches = append(asks.Matches, strategy.Match{QueryParams: []strategy.ValueMatch{{Type: strategy.MatchExact,
		Name: "user", Value: "tester"}}})
	return asks
}

// severalRoutes are an Ingress, and a VirtualService with a DestinationRule of another host.
func severalRoutes() []strategy.Routing {
	custom := ways["custom"].routing
	custom.Custom = append(custom.Custom[:len(custom.Custom):len(custom.Custom)], strategy.ObjectRef{
		APIVersion: "networking.istio.io/v1", Kind: "DestinationRule", Name: "other"})
	return []strategy.Routing{ways["ingress"].routing, custom}
}

func newSeveralRoutes(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	b.set(ways["ingress"])
	b.apply(replaceSpace(virtualServiceYAML, b.namespace))
	b.apply(otherRuleYAML)
	return b
}

// A route that cannot express a step's matches sends the new version nothing in that step, and is named; it takes part
// in the next step again. Objects that no request reaches stay unchanged.
func TestRoute_LeavesOut_WhatCannotExpressStep(t *testing.T) {
	b := newSeveralRoutes(t)
	before := own(b.object("DestinationRule", "other"))
	b.must(b.request(rollout.RoutePin, severalRoutes()...))
	for i, asks := range []strategy.Traffic{weight(20), byQuery(), weight(50)} {
		req := b.request(rollout.RouteEnsure, severalRoutes()...)
		req.Traffic, req.LeaveOut = asks, true
		result := b.must(req)
		require.Contains(t, result.LeftOut, "DestinationRule "+b.namespace+"/other is left unchanged: the "+
			"DestinationRule is for host other, not for Service order")
		require.Equal(t, before, own(b.object("DestinationRule", "other")))
		canary := b.object("Ingress", "order-canary")
		if i != 1 {
			require.Len(t, result.LeftOut, 1)
			require.NotNil(t, canary, "step %d", i+1)
			b.requireSplit(ways["custom"], asks)
			continue
		}
		require.Len(t, result.LeftOut, 2)
		require.Contains(t, result.LeftOut, "Ingress "+b.namespace+"/order sends the new version nothing: class "+
			"nginx cannot match by query parameter: use an HTTPRoute, or headers")
		require.Nil(t, canary, "the Ingress sends the new version nothing")
		require.Contains(t, toJSON(t, b.object("VirtualService", "order").Object["spec"]), "queryParams")
	}
	b.must(b.request(rollout.RouteToStable, severalRoutes()...))
	require.Nil(t, b.object("Ingress", "order-canary"))
}

// What no route can express is refused, and so is everything that one of them cannot express over HTTP and in plans.
func TestRoute_IsRefused_WhenNoneCanExpressStep(t *testing.T) {
	b := newSeveralRoutes(t)
	header := weight(20)
	header.RequestHeaderModifier = &strategy.HeaderModifier{Set: []strategy.Header{{Name: "a", Value: "b"}}}
	for _, c := range []struct {
		reason   string
		leaveOut bool
		asks     strategy.Traffic
		routes   []strategy.Routing
		change   func(*rollout.RouteRequest)
		text     string
	}{
		{"a release over HTTP", false, byQuery(), severalRoutes(), nil, "cannot match by query parameter"},
		{"the Ingress alone", true, byQuery(), severalRoutes()[:1], nil, "cannot match by query parameter"},
		{"a weight whose requests get a header", true, header, severalRoutes(), nil, "cannot change the headers"},
		{"without a canary Service, the subset is needed", true, weight(20), severalRoutes()[1:],
			func(r *rollout.RouteRequest) { r.NoCanary = true }, "is for host other"},
	} {
		req := b.request(rollout.RouteEnsure, c.routes...)
		req.Traffic, req.LeaveOut = c.asks, c.leaveOut
		if c.change != nil {
			c.change(&req)
		}
		message, _ := b.fails(req, failure.Refused)
		require.Contains(t, message, c.text, c.reason)
	}
	require.Nil(t, b.object("Ingress", "order-canary"), "nothing was written")
}

// A preflight of a Rollout object's release refuses what the steps would refuse, and names what they leave out.
func TestPreflight_NamesWhatStepsLeaveOut(t *testing.T) {
	b := newSeveralRoutes(t)
	b.apply(deploymentYAML)
	request := func(declared *strategy.Declared, routes []strategy.Routing) rollout.PreflightRequest {
		return rollout.PreflightRequest{Subject: b.request("").Subject, Change: strategy.Change{Declared: declared},
			Strategy: strategy.Strategy{Style: strategy.StylePartition, Routings: routes, Steps: []strategy.Step{
				{Traffic: weight(20).Weight}, {Matches: byQuery().Matches}}}}
	}
	object := &strategy.Declared{Template: "new"}
	found, err := b.acts.TrafficPreflight(t.Context(), request(object, severalRoutes()))
	require.NoError(t, err)
	require.Empty(t, found.Refusals)
	require.Len(t, found.Notices, 3, "the DestinationRule in both steps, the Ingress in the second: %v", found.Notices)
	require.Contains(t, found.Notices[2]+found.Notices[1],
		"strategy.canary.steps[1]: Ingress "+b.namespace+"/order sends the new version nothing")

	found, err = b.acts.TrafficPreflight(t.Context(), request(object, severalRoutes()[:1]))
	require.NoError(t, err)
	require.Len(t, found.Refusals, 1)
	require.Equal(t, "strategy.canary.steps[1].matches[1].queryParams", found.Refusals[0].Field)

	found, err = b.acts.TrafficPreflight(t.Context(), request(nil, severalRoutes()))
	require.NoError(t, err)
	require.NotEmpty(t, found.Refusals, "over HTTP and in plans it is refused")
}
