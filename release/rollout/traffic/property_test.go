package traffic_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/test/shares"
)

func drawRoute(t *rapid.T) traffic.Object {
	var rules []any
	for i := range rapid.IntRange(1, 5).Draw(t, "rules") {
		rule := traffic.Object{"matches": []any{traffic.Object{"path": traffic.Object{"type": "PathPrefix",
			"value": fmt.Sprintf("/r%d", i)}}}}
		if rapid.Bool().Draw(t, "redirect") && i > 0 {
			rule["filters"] = []any{traffic.Object{"type": "RequestRedirect",
				"requestRedirect": traffic.Object{"statusCode": int64(302)}}}
			rules = append(rules, rule)
			continue
		}
		names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"order", "cart", "legacy"}), 1, 3,
			rapid.ID[string]).Draw(t, "backends")
		if i == 0 {
			names = []string{"order", "legacy"}[:rapid.IntRange(1, 2).Draw(t, "first")]
		}
		var refs []any
		for _, n := range names {
			ref := traffic.Object{"kind": "Service", "name": n, "port": int64(80)}
			if rapid.Bool().Draw(t, "weighted") {
				ref["weight"] = int64(rapid.IntRange(1, 500).Draw(t, "weight"))
			}
			refs = append(refs, ref)
		}
		rule["backendRefs"] = refs
		rules = append(rules, rule)
	}
	return traffic.Object{
		"metadata": traffic.Object{"name": "order", "namespace": "shop", "resourceVersion": "1",
			"annotations": traffic.Object{"mine": "yes"}},
		"spec": traffic.Object{"rules": rules},
	}
}

func drawAsks(t *rapid.T) strategy.Traffic {
	if rapid.Bool().Draw(t, "byMatches") {
		return matches(headerIs("u", rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value")))
	}
	return weight(rapid.Int32Range(0, 100).Draw(t, "percent"))
}

// TestHTTPRouteShares_AreExact_InAnyOrderOfSteps requests random traffic on random routes: at every moment each backend
// has its part and the user's other rules exist; at the end the route is its original.
func TestHTTPRouteShares_AreExact_InAnyOrderOfSteps(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		original := drawRoute(rt)
		r := &release{t: rt, live: jsonpatch.Apply(original, nil)}
		for range rapid.IntRange(1, 4).Draw(rt, "steps") {
			asks := drawAsks(rt)
			r.ask(asks)
			requireShares(rt, original, r.live, asks)
		}
		r.finish()
		require.Equal(rt, original, r.live)
	})
}

// requireShares compares each rule's split with the original's: the stable version's part is divided, other backends
// keep theirs.
func requireShares(t *rapid.T, original, live traffic.Object, asks strategy.Traffic) {
	routing := strategy.Routing{Service: "order", HTTPRoute: "order"}
	for i, rule := range original["spec"].(traffic.Object)["rules"].([]any) {
		if rule.(traffic.Object)["backendRefs"] == nil {
			continue
		}
		probe := on(fmt.Sprintf("/r%d", i))
		before, err := shares.Of(world(original), routing, probe)
		require.NoError(t, err)
		now, err := shares.Of(world(live), routing, probe)
		require.NoError(t, err)
		part := 0.0
		if asks.Weight != nil {
			part = float64(*asks.Weight) / 100
		}
		require.InDelta(t, before.ByRevision["old"]*part, now.ByRevision["new"], 1e-9)
		require.InDelta(t, before.ByRevision["old"]*(1-part), now.ByRevision["old"], 1e-9)
		require.InDelta(t, before.ByRevision["legacy"], now.ByRevision["legacy"], 1e-9)
		require.InDelta(t, before.ByRevision["cart"], now.ByRevision["cart"], 1e-9)
		sum := now.Unreachable
		for _, share := range now.ByRevision {
			sum += share
		}
		require.InDelta(t, 1, sum, 1e-9)
	}
}
