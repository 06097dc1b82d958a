package shares

import (
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
)

func (o Objects) throughHTTPRoute(routing strategy.Routing, request Probe) ([]destination, error) {
	route := find(o.HTTPRoutes, routing.HTTPRoute)
	if route == nil {
		return nil, MissingError{"HTTPRoute", routing.HTTPRoute}
	}
	rules := jsonpatch.DigObjects(route, "spec", "rules")
	rule := chosenRule(rules, request)
	if rule == nil && request.Path == "" {
		request.Path = firstPath(rules, routing)
		rule = chosenRule(rules, request)
	}
	if rule == nil {
		return nil, noRule("HTTPRoute", routing.HTTPRoute, request)
	}
	var to []destination
	for _, ref := range jsonpatch.DigObjects(rule, "backendRefs") {
		weight := int64(1)
		if w, set := traffic.Number(ref["weight"]); set {
			weight = w
		}
		to = append(to, destination{jsonpatch.DigString(ref, "name"), float64(weight)})
	}
	return to, nil
}

// rank is the specificity of a match, in the order of the Gateway API: exact path, then length of the prefix, then
// method, headers, query parameters.
type rank [5]int

func (r rank) moreSpecific(s rank) bool {
	for i := range r {
		if r[i] != s[i] {
			return r[i] > s[i]
		}
	}
	return false
}

// chosenRule returns the rule with the most specific match for the request, the first of equals; nil if there is none.
func chosenRule(rules []traffic.Object, request Probe) traffic.Object {
	var chosen traffic.Object
	var best rank
	for _, rule := range rules {
		matches := jsonpatch.DigObjects(rule, "matches")
		if len(matches) == 0 {
			matches = []traffic.Object{{}}
		}
		for _, m := range matches {
			if r, ok := meets(m, request); ok && (chosen == nil || r.moreSpecific(best)) {
				chosen, best = rule, r
			}
		}
	}
	return chosen
}

func meets(m traffic.Object, request Probe) (rank, bool) {
	kind, value := traffic.PathOf(m)
	var r rank
	switch kind {
	case string(strategy.MatchExact):
		if value != request.path() {
			return r, false
		}
		r[0] = 1
	case string(strategy.MatchRegularExpression):
		if !traffic.FullMatch(value, request.path()) {
			return r, false
		}
		r[1] = len(value)
	default:
		if !traffic.PrefixMatches(value, request.path()) {
			return r, false
		}
		r[1] = len(value)
	}
	if method := jsonpatch.DigString(m, "method"); method != "" {
		if method != request.method() {
			return r, false
		}
		r[2] = 1
	}
	headers, query := jsonpatch.DigObjects(m, "headers"), jsonpatch.DigObjects(m, "queryParams")
	for _, h := range headers {
		if !meetsValue(h, header(request, jsonpatch.DigString(h, "name"))) {
			return r, false
		}
	}
	for _, q := range query {
		if !meetsValue(q, request.Query[jsonpatch.DigString(q, "name")]) {
			return r, false
		}
	}
	r[3], r[4] = len(headers), len(query)
	return r, true
}

func meetsValue(m traffic.Object, value string) bool {
	if jsonpatch.DigString(m, "type") == string(strategy.MatchRegularExpression) {
		return value != "" && traffic.FullMatch(jsonpatch.DigString(m, "value"), value)
	}
	return value == jsonpatch.DigString(m, "value")
}

// firstPath returns the path of the first rule that routes to the routing's Service.
func firstPath(rules []traffic.Object, routing strategy.Routing) string {
	for _, rule := range rules {
		for _, ref := range jsonpatch.DigObjects(rule, "backendRefs") {
			if jsonpatch.DigString(ref, "name") != routing.Service {
				continue
			}
			for _, m := range jsonpatch.DigObjects(rule, "matches") {
				if kind, value := traffic.PathOf(m); kind != string(strategy.MatchRegularExpression) {
					return value
				}
			}
		}
	}
	return "/"
}
