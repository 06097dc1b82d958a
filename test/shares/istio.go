package shares

import (
	"cmp"
	"fmt"
	"strings"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
)

func (o Objects) throughVirtualService(routing strategy.Routing, request Probe) ([]destination, error) {
	for _, ref := range routing.Custom {
		if ref.Kind != traffic.KindVirtualService || !strings.HasPrefix(ref.APIVersion, traffic.GroupIstio+"/") {
			continue
		}
		for _, vs := range o.Custom {
			if jsonpatch.DigString(vs, "kind") == traffic.KindVirtualService &&
				jsonpatch.DigString(vs, "metadata", "name") == ref.Name {
				return virtualServiceTo(vs, routing, request)
			}
		}
		return nil, MissingError{"VirtualService", ref.Name}
	}
	return nil, fmt.Errorf("the routing of Service %s has no VirtualService; other kinds cannot be evaluated",
		routing.Service)
}

// virtualServiceTo uses the first rule that matches the request, as Istio does.
func virtualServiceTo(vs traffic.Object, routing strategy.Routing, request Probe) ([]destination, error) {
	rules := jsonpatch.DigObjects(vs, "spec", "http")
	if len(rules) == 0 {
		rules = append(jsonpatch.DigObjects(vs, "spec", "tcp"), jsonpatch.DigObjects(vs, "spec", "tls")...)
	}
	rule := firstMet(rules, request)
	if rule == nil && request.Path == "" {
		request.Path = firstURI(rules, routing)
		rule = firstMet(rules, request)
	}
	if rule == nil {
		return nil, noRule(traffic.KindVirtualService, jsonpatch.DigString(vs, "metadata", "name"), request)
	}
	routes := jsonpatch.DigObjects(rule, "route")
	var to []destination
	for _, r := range routes {
		weight, set := traffic.Number(r["weight"])
		if !set && len(routes) == 1 {
			weight = 1
		}
		service, _, _ := strings.Cut(jsonpatch.DigString(r, "destination", "host"), ".")
		to = append(to, destination{service, float64(weight)})
	}
	return to, nil
}

func firstMet(rules []traffic.Object, request Probe) traffic.Object {
	for _, rule := range rules {
		matches := jsonpatch.DigObjects(rule, "match")
		if len(matches) == 0 {
			return rule
		}
		for _, m := range matches {
			if meetsIstio(m, request) {
				return rule
			}
		}
	}
	return nil
}

func meetsIstio(m traffic.Object, request Probe) bool {
	if uri := jsonpatch.DigObject(m, "uri"); uri != nil && !meetsString(uri, request.path(), true) {
		return false
	}
	if method := jsonpatch.DigObject(m, "method"); method != nil && !meetsString(method, request.method(), true) {
		return false
	}
	for name := range jsonpatch.DigObject(m, "headers") {
		value := header(request, name)
		if !meetsString(jsonpatch.DigObject(m, "headers", name), value, value != "") {
			return false
		}
	}
	for name := range jsonpatch.DigObject(m, "queryParams") {
		value, present := request.Query[name]
		if !meetsString(jsonpatch.DigObject(m, "queryParams", name), value, present) {
			return false
		}
	}
	return true
}

// meetsString compares like Istio's StringMatch; an empty match requires only presence.
func meetsString(m traffic.Object, value string, present bool) bool {
	if !present {
		return false
	}
	if exact, is := m["exact"].(string); is {
		return value == exact
	}
	if prefix, is := m["prefix"].(string); is {
		return strings.HasPrefix(value, prefix)
	}
	if expression, is := m["regex"].(string); is {
		return traffic.FullMatch(expression, value)
	}
	return true
}

func firstURI(rules []traffic.Object, routing strategy.Routing) string {
	for _, rule := range rules {
		for _, r := range jsonpatch.DigObjects(rule, "route") {
			if host, _, _ := strings.Cut(jsonpatch.DigString(r, "destination", "host"), "."); host != routing.Service {
				continue
			}
			for _, m := range jsonpatch.DigObjects(rule, "match") {
				if uri := cmp.Or(jsonpatch.DigString(m, "uri", "exact"),
					jsonpatch.DigString(m, "uri", "prefix")); uri != "" {
					return uri
				}
			}
		}
	}
	return "/"
}
