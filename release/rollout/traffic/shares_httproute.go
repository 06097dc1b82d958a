package traffic

import (
	"fmt"
	"regexp"

	"slipway.io/slipway/release/rollout"
)

func (o Objects) throughHTTPRoute(routing rollout.Routing, request Probe) ([]destination, error) {
	route := find(o.HTTPRoutes, routing.HTTPRoute)
	if route == nil {
		return nil, fmt.Errorf("there is no HTTPRoute %s", routing.HTTPRoute)
	}
	rules := digObjects(route, "spec", "rules")
	rule := chosenRule(rules, request)
	if rule == nil && request.Path == "" {
		request.Path = firstPath(rules, routing)
		rule = chosenRule(rules, request)
	}
	if rule == nil {
		return nil, noRule("HTTPRoute", routing.HTTPRoute, request)
	}
	var to []destination
	for _, ref := range digObjects(rule, "backendRefs") {
		weight := int64(1)
		if w, said := number(ref["weight"]); said {
			weight = w
		}
		to = append(to, destination{digString(ref, "name"), float64(weight)})
	}
	return to, nil
}

// rank is how specific a match is, by the order of the Gateway API: exact path, then length of the prefix, then method, headers, query parameters.
type rank [5]int

func (r rank) above(s rank) bool {
	for i := range r {
		if r[i] != s[i] {
			return r[i] > s[i]
		}
	}
	return false
}

// chosenRule is the rule with the most specific match that the request meets; of equals the first; nil when there is none.
func chosenRule(rules []Object, request Probe) Object {
	var chosen Object
	var best rank
	for _, rule := range rules {
		matches := digObjects(rule, "matches")
		if len(matches) == 0 {
			matches = []Object{{}}
		}
		for _, m := range matches {
			if r, met := meets(m, request); met && (chosen == nil || r.above(best)) {
				chosen, best = rule, r
			}
		}
	}
	return chosen
}

func meets(m Object, request Probe) (rank, bool) {
	kind, value := pathOf(m)
	var r rank
	switch kind {
	case string(rollout.MatchExact):
		if value != request.path() {
			return r, false
		}
		r[0] = 1
	case string(rollout.MatchRegularExpression):
		if !fully(value, request.path()) {
			return r, false
		}
		r[1] = len(value)
	default:
		if !prefixMatches(value, request.path()) {
			return r, false
		}
		r[1] = len(value)
	}
	if method := digString(m, "method"); method != "" {
		if method != request.method() {
			return r, false
		}
		r[2] = 1
	}
	headers, query := digObjects(m, "headers"), digObjects(m, "queryParams")
	for _, h := range headers {
		if !meetsValue(h, header(request, digString(h, "name"))) {
			return r, false
		}
	}
	for _, q := range query {
		if !meetsValue(q, request.Query[digString(q, "name")]) {
			return r, false
		}
	}
	r[3], r[4] = len(headers), len(query)
	return r, true
}

func meetsValue(m Object, value string) bool {
	if digString(m, "type") == string(rollout.MatchRegularExpression) {
		return value != "" && fully(digString(m, "value"), value)
	}
	return value == digString(m, "value")
}

// fully says whether an expression matches a whole text, as Envoy compares.
func fully(expression, text string) bool {
	re, err := regexp.Compile("^(?:" + expression + ")$")
	return err == nil && re.MatchString(text)
}

// pathOf is a match's path with the defaults of the Gateway API.
func pathOf(m Object) (kind, value string) {
	return orElse(digString(m, "path", "type"), string(rollout.MatchPathPrefix)), orElse(digString(m, "path", "value"), "/")
}

// firstPath is the path of the first rule that routes to the routing's Service.
func firstPath(rules []Object, routing rollout.Routing) string {
	for _, rule := range rules {
		for _, ref := range digObjects(rule, "backendRefs") {
			if digString(ref, "name") != routing.Service {
				continue
			}
			for _, m := range digObjects(rule, "matches") {
				if kind, value := pathOf(m); kind != string(rollout.MatchRegularExpression) {
					return value
				}
			}
		}
	}
	return "/"
}
