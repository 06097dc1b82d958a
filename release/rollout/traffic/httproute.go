package traffic

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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

// HTTPRoute derives the route for the requested traffic. It fails with failure.Refused if the route cannot express it.
func HTTPRoute(pair ServicePair, asks strategy.Traffic) func(original Object) (Object, []string, error) {
	return func(original Object) (Object, []string, error) {
		rules, err := HTTPRouteRules(original, pair, asks)
		if err == nil {
			jsonpatch.Put(original, pathRules, rules)
		}
		return original, []string{pathRules}, err
	}
}

// HTTPRouteRules returns the original route's rules, changed for the requested traffic. By weight, each rule to the
// stable Service divides that Service's part exactly; by matches, a rule for the canary is put before it. Other rules
// are unchanged.
func HTTPRouteRules(original Object, pair ServicePair, asks strategy.Traffic) ([]any, error) {
	name := "HTTPRoute " + jsonpatch.DigString(original, "metadata", "name")
	r := routeWriter{name: name, namespace: jsonpatch.DigString(original, "metadata", "namespace"), pair: pair,
		asks: asks}
	rules, _ := jsonpatch.Dig(original, "spec", "rules").([]any)
	var out []any
	for _, item := range rules {
		rule, ok := item.(map[string]any)
		if !ok || r.backend(rule, pair.Stable) < 0 {
			out = append(out, item)
			continue
		}
		if !pair.Same() && r.backend(rule, pair.Canary) >= 0 {
			return nil, refuse("%s leads to Service %s already: remove that backend, since a release adds it by itself",
				name, pair.Canary)
		}
		r.found = true
		changed, err := []any{rule}, error(nil)
		if len(asks.Matches) > 0 {
			if changed, err = r.byMatches(rule); err != nil {
				err = &Inexpressible{err}
			}
		} else if asks.Weight != nil {
			changed, err = r.byWeight(rule)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, changed...)
	}
	switch {
	case !r.found:
		return nil, refuse("%s has no rule that leads to Service %s: name another route or another Service", name,
			pair.Stable)
	case len(asks.Matches) > 0 && !r.matched:
		return nil, &Inexpressible{refuse("%s has no rule for Service %s that a request of the step's matches could "+
			"meet: ask for a path that one of its rules takes", name, pair.Stable)}
	}
	if err := r.limits(out); err != nil && len(asks.Matches) > 0 {
		return nil, &Inexpressible{err}
	} else if err != nil {
		return nil, err
	}
	return out, nil
}

// Inexpressible is the refusal of matches that a route cannot express. Other refusals are of the route as a whole.
type Inexpressible struct{ err error }

func (i *Inexpressible) Error() string { return i.err.Error() }

func (i *Inexpressible) Unwrap() error { return i.err }

type routeWriter struct {
	name, namespace string
	pair            ServicePair
	asks            strategy.Traffic
	found, matched  bool
}

// backend returns the index of the first of a rule's backends that is this Service in the route's namespace, -1 for
// none.
func (r *routeWriter) backend(rule Object, service string) int {
	return slices.IndexFunc(jsonpatch.DigObjects(rule, "backendRefs"), func(ref Object) bool {
		return r.isService(ref, service)
	})
}

func (r *routeWriter) isService(ref Object, service string) bool {
	return jsonpatch.DigString(ref, "name") == service && jsonpatch.DigString(ref, "group") == "" &&
		cmp.Or(jsonpatch.DigString(ref, "kind"),
			"Service") == "Service" && cmp.Or(jsonpatch.DigString(ref, "namespace"), r.namespace) == r.namespace
}

// byWeight divides the part of each backend that is the stable Service between it and the canary. The parts of all
// other backends stay the same: all weights of the rule are multiplied by 100, then reduced again.
func (r *routeWriter) byWeight(rule Object) ([]any, error) {
	if plain := r.pair.Same() && r.asks.RequestHeaderModifier == nil; plain && *r.asks.Weight == 100 {
		return []any{rule}, nil // the only Service has everything: every blue-green ends so
	} else if plain {
		return nil, refuse("%s: without a canary Service a weight changes nothing but the headers, and the step asks "+
			"for no header: use matches or requestHeaderModifier", r.name)
	}
	w := int64(*r.asks.Weight)
	var refs []any
	var weights []int64
	backends := jsonpatch.DigObjects(rule, "backendRefs")
	for _, ref := range backends {
		own, said := Number(ref["weight"])
		switch {
		case !said:
			own = 1
		case len(backends) == 1:
			own = min(own, 1) // a single backend gets everything at any weight
		}
		if !r.isService(ref, r.pair.Stable) {
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

// canaryRef returns a backend like the stable one that leads to the canary, with the headers for its requests.
func (r *routeWriter) canaryRef(stable Object) (Object, error) {
	ref := clone(stable)
	ref["name"] = r.pair.Canary
	return ref, r.addHeaderModifier(ref)
}

// setWeights sets the smallest weights with the same proportions. Two weights that add up to 100 stay, since users read
// them as percentages. If a weight would exceed the maximum, all are rounded, but never to 0.
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

// limits refuses what the API server would reject.
func (r *routeWriter) limits(rules []any) error {
	if len(rules) > maxRules {
		return refuse("%s would have %d rules, the most is %d: merge rules of it, or ask by weight instead of matches",
			r.name, len(rules), maxRules)
	}
	all := 0
	for _, rule := range objectsOf(rules) {
		matches := jsonpatch.DigObjects(rule, "matches")
		all += len(matches)
		if len(matches) > maxMatches {
			return refuse("a rule of %s would have %d matches, the most is %d: ask for fewer matches", r.name,
				len(matches), maxMatches)
		}
		if refs := len(jsonpatch.DigObjects(rule, "backendRefs")); refs > maxBackendRefs {
			return refuse("a rule of %s would have %d backends, the most is %d", r.name, refs, maxBackendRefs)
		}
		for _, m := range matches {
			if len(jsonpatch.DigObjects(m, "headers")) > maxValues ||
				len(jsonpatch.DigObjects(m, "queryParams")) > maxValues {
				return refuse("a match of %s would have more than %d headers or query parameters: ask for fewer",
					r.name, maxValues)
			}
		}
	}
	if all > maxAllMatches {
		return refuse("%s would have %d matches in all, the most is %d: ask for fewer matches", r.name, all,
			maxAllMatches)
	}
	return nil
}

const (
	filterHeaders = "RequestHeaderModifier"
	fieldHeaders  = "requestHeaderModifier"
)

// addHeaderModifier adds the step's RequestHeaderModifier to the filters of a rule or backend. Only one such filter is
// allowed, so it is merged into an existing one as if it were applied after that.
func (r *routeWriter) addHeaderModifier(holder Object) error {
	asked := r.asks.RequestHeaderModifier
	if asked == nil {
		return nil
	}
	filters, _ := clone(holder["filters"]).([]any)
	filter := Object{"type": filterHeaders}
	if i := slices.IndexFunc(objectsOf(filters), func(f Object) bool {
		return jsonpatch.DigString(f, "type") == filterHeaders
	}); i >= 0 {
		filter = objectsOf(filters)[i]
	} else {
		filters = append(filters, filter)
	}
	modifier := mergedModifier(jsonpatch.DigObject(filter, fieldHeaders), asked)
	filter[fieldHeaders], holder["filters"] = modifier, filters
	for _, part := range []string{"set", "add", "remove"} {
		if list, _ := modifier[part].([]any); len(list) > maxValues {
			return refuse("%s would %s %d headers in one filter, the most is %d", r.name, part, len(list), maxValues)
		}
	}
	return nil
}

// mergedModifier returns one modifier that does what the route's own does, and then the step's.
func mergedModifier(own Object, asked *strategy.HeaderModifier) Object {
	set, add := jsonpatch.DigObjects(own, "set"), jsonpatch.DigObjects(own, "add")
	remove, _, _ := unstructured.NestedStringSlice(own, "remove")
	named := func(name string) func(Object) bool {
		return func(m Object) bool { return strings.EqualFold(jsonpatch.DigString(m, "name"), name) }
	}
	forget := func(name string) {
		set, add = slices.DeleteFunc(set, named(name)), slices.DeleteFunc(add, named(name))
		remove = slices.DeleteFunc(remove, func(s string) bool { return strings.EqualFold(s, name) })
	}
	for _, name := range asked.Remove {
		forget(name)
		remove = append(remove, name)
	}
	for _, h := range asked.Set {
		forget(h.Name)
		set = append(set, Object{"name": h.Name, "value": h.Value})
	}
	for _, h := range asked.Add {
		// A name may occur only once in a list: an earlier entry takes the value in.
		there := slices.Concat(add, set)
		if i := slices.IndexFunc(there, named(h.Name)); i >= 0 {
			there[i]["value"] = jsonpatch.DigString(there[i], "value") + "," + h.Value
		} else {
			add = append(add, Object{"name": h.Name, "value": h.Value})
		}
	}
	out := Object{}
	for field, list := range map[string][]any{"set": anyList(set), "add": anyList(add), "remove": anyList(remove)} {
		if len(list) > 0 {
			out[field] = list
		}
	}
	return out
}

func anyList[T any](list []T) []any {
	out := make([]any, 0, len(list))
	for _, item := range list {
		out = append(out, item)
	}
	return out
}
