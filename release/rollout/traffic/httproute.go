package traffic

import (
	"cmp"
	"reflect"
	"slices"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout/strategy"
)

// pathRules is the place of an HTTPRoute that a release borrows.
const pathRules = "/spec/rules"

// The limits of an HTTPRoute (its CRD's schema, v1).
const (
	maxRules       = 16
	maxMatches     = 64
	maxAllMatches  = 128
	maxBackendRefs = 16
	maxValues      = 16
	maxWeight      = 1_000_000
)

// HTTPRoute derives the route that does what the traffic asks. It fails with failure.Refused when the route cannot express it.
func HTTPRoute(pair ServicePair, asks strategy.Traffic) func(original Object) (Object, []string, error) {
	return func(original Object) (Object, []string, error) {
		rules, err := HTTPRouteRules(original, pair, asks)
		if err == nil {
			jsonpatch.Put(original, pathRules, rules)
		}
		return original, []string{pathRules}, err
	}
}

// HTTPRouteRules are the original route's rules, changed to do what the traffic asks. By weight, each rule to the stable Service divides
// that Service's part exactly; by matches, a rule for the canary is put before it. Others stay as they are.
func HTTPRouteRules(original Object, pair ServicePair, asks strategy.Traffic) ([]any, error) {
	name := "HTTPRoute " + DigString(original, "metadata", "name")
	r := routeWriter{name: name, namespace: DigString(original, "metadata", "namespace"), pair: pair, asks: asks}
	rules, _ := Dig(original, "spec", "rules").([]any)
	var out []any
	for _, item := range rules {
		rule, ok := item.(map[string]any)
		if !ok || !r.leadsTo(rule, pair.Stable) {
			out = append(out, item)
			continue
		}
		if !pair.Same() && r.leadsTo(rule, pair.Canary) {
			return nil, refuse("%s leads to Service %s already: take that out of it, since a release does this by itself", name, pair.Canary)
		}
		r.found = true
		changed, err := r.change(rule)
		if err != nil {
			return nil, err
		}
		out = append(out, changed...)
	}
	switch {
	case !r.found:
		return nil, refuse("%s has no rule that leads to Service %s: name another route or another Service", name, pair.Stable)
	case len(asks.Matches) > 0 && !r.matched:
		return nil, refuse("%s has no rule for Service %s that a request of the step's matches could meet: ask for a path that one of its "+
			"rules takes", name, pair.Stable)
	}
	return out, r.limits(out)
}

type routeWriter struct {
	name, namespace string
	pair            ServicePair
	asks            strategy.Traffic
	found, matched  bool
}

// leadsTo says whether one of a rule's backends is this Service of the route's namespace.
func (r *routeWriter) leadsTo(rule Object, service string) bool {
	return slices.ContainsFunc(DigObjects(rule, "backendRefs"), func(ref Object) bool { return r.is(ref, service) })
}

func (r *routeWriter) is(ref Object, service string) bool {
	return DigString(ref, "name") == service && DigString(ref, "group") == "" && cmp.Or(DigString(ref, "kind"), "Service") == "Service" &&
		cmp.Or(DigString(ref, "namespace"), r.namespace) == r.namespace
}

func (r *routeWriter) change(rule Object) ([]any, error) {
	if len(r.asks.Matches) > 0 {
		return r.byMatches(rule)
	}
	if r.asks.Weight == nil {
		return []any{rule}, nil
	}
	return r.byWeight(rule)
}

// byWeight divides the part of each backend that is the stable Service between it and the canary. The parts of all other backends stay what
// they were: all weights of the rule are multiplied alike, then made small again.
func (r *routeWriter) byWeight(rule Object) ([]any, error) {
	if plain := r.pair.Same() && r.asks.RequestHeaderModifier == nil; plain && *r.asks.Weight == 100 {
		return []any{rule}, nil // the only Service has everything: so ends every blue-green
	} else if plain {
		return nil, refuse("%s: without a canary Service a weight changes nothing but the headers, and the step asks for no header: use "+
			"matches or requestHeaderModifier", r.name)
	}
	w := int64(*r.asks.Weight)
	var refs []any
	var weights []int64
	backends := DigObjects(rule, "backendRefs")
	for _, ref := range backends {
		own, said := Number(ref["weight"])
		switch {
		case !said:
			own = 1
		case len(backends) == 1:
			own = min(own, 1) // alone it gets everything, whatever its weight
		}
		if !r.is(ref, r.pair.Stable) {
			refs, weights = append(refs, clone(ref)), append(weights, own*100)
			continue
		}
		canary, err := r.canaryRef(ref)
		if err != nil {
			return nil, err
		}
		refs, weights = append(refs, clone(ref), canary), append(weights, own*(100-w), own*w)
	}
	setWeights(refs, weights)
	out := clone(rule)
	out["backendRefs"] = refs
	return []any{out}, nil
}

// canaryRef is a backend like the stable one that leads to the canary, with the headers that its requests get.
func (r *routeWriter) canaryRef(stable Object) (Object, error) {
	ref := clone(stable)
	ref["name"] = r.pair.Canary
	return ref, r.modify(ref)
}

// setWeights sets weights in the smallest numbers that have the same proportions; two that come to a hundred are percentages already, which
// is what people read. Beyond what a weight may be they are rounded, never to 0.
func setWeights(refs []any, weights []int64) {
	var most, divisor int64
	for _, w := range weights {
		divisor = gcd(divisor, w)
		most = max(most, w)
	}
	if len(weights) == 2 && weights[0]+weights[1] == 100 || divisor == 0 {
		divisor = 1
	}
	most /= divisor
	for i, w := range weights {
		n := w / divisor
		if most > maxWeight && w > 0 {
			n = max(1, (n*maxWeight+most/2)/most)
		}
		refs[i].(map[string]any)["weight"] = n
	}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// byMatches puts a rule for the canary before a stable rule: the same rule with its matches narrowed by each of the step's.
func (r *routeWriter) byMatches(rule Object) ([]any, error) {
	own := DigObjects(rule, "matches")
	if len(own) == 0 {
		own = []Object{{"path": Object{"type": string(strategy.MatchPathPrefix), "value": "/"}}}
	}
	var narrowed []any
	for _, mine := range own {
		for _, asked := range r.asks.Matches {
			m, possible, err := r.both(mine, asked)
			if err != nil {
				return nil, err
			}
			if possible && !slices.ContainsFunc(narrowed, func(n any) bool { return reflect.DeepEqual(n, any(m)) }) {
				narrowed = append(narrowed, m)
			}
		}
	}
	if len(narrowed) == 0 {
		return []any{rule}, nil
	}
	r.matched = true
	canary := clone(rule)
	delete(canary, "name") // a rule's name is its own
	canary["matches"] = narrowed
	if err := r.modify(canary); err != nil {
		return nil, err
	}
	canary["backendRefs"] = r.onlyCanary(rule)
	return []any{canary, rule}, nil
}

// onlyCanary are the backends of a rule for the canary alone: like the first that is the stable Service.
func (r *routeWriter) onlyCanary(rule Object) []any {
	for _, ref := range DigObjects(rule, "backendRefs") {
		if r.is(ref, r.pair.Stable) {
			canary := clone(ref)
			canary["name"] = r.pair.Canary
			canary["weight"] = int64(1)
			return []any{canary}
		}
	}
	return nil
}

// limits refuses what the API server would not take.
func (r *routeWriter) limits(rules []any) error {
	if len(rules) > maxRules {
		return refuse("%s would have %d rules, the most is %d: merge rules of it, or ask by weight instead of matches", r.name, len(rules),
			maxRules)
	}
	all := 0
	for _, rule := range objectsOf(rules) {
		matches := DigObjects(rule, "matches")
		all += len(matches)
		if len(matches) > maxMatches {
			return refuse("a rule of %s would have %d matches, the most is %d: ask for fewer matches", r.name, len(matches), maxMatches)
		}
		if refs := len(DigObjects(rule, "backendRefs")); refs > maxBackendRefs {
			return refuse("a rule of %s would have %d backends, the most is %d", r.name, refs, maxBackendRefs)
		}
		for _, m := range matches {
			if len(DigObjects(m, "headers")) > maxValues || len(DigObjects(m, "queryParams")) > maxValues {
				return refuse("a match of %s would have more than %d headers or query parameters: ask for fewer", r.name, maxValues)
			}
		}
	}
	if all > maxAllMatches {
		return refuse("%s would have %d matches in all, the most is %d: ask for fewer matches", r.name, all, maxAllMatches)
	}
	return nil
}
