package traffic

import (
	"fmt"
	"strings"

	"slipway.io/slipway/release/rollout"
)

func (o Objects) throughVirtualService(routing rollout.Routing, request Probe) ([]destination, error) {
	for _, ref := range routing.Custom {
		if ref.Kind != kindVirtualService || !strings.HasPrefix(ref.APIVersion, groupIstio+"/") {
			continue
		}
		for _, vs := range o.Custom {
			if digString(vs, "kind") == kindVirtualService && digString(vs, "metadata", "name") == ref.Name {
				return virtualServiceTo(vs, routing, request)
			}
		}
		return nil, fmt.Errorf("there is no VirtualService %s", ref.Name)
	}
	return nil, fmt.Errorf("the routing of Service %s has no VirtualService; of other objects nothing is known", routing.Service)
}

// The names of Istio's object.
const (
	kindVirtualService = "VirtualService"
	groupIstio         = "networking.istio.io"
)

// virtualServiceTo takes the first rule that the request meets, as Istio does.
func virtualServiceTo(vs Object, routing rollout.Routing, request Probe) ([]destination, error) {
	rules := digObjects(vs, "spec", "http")
	if len(rules) == 0 {
		rules = append(digObjects(vs, "spec", "tcp"), digObjects(vs, "spec", "tls")...)
	}
	rule := firstMet(rules, request)
	if rule == nil && request.Path == "" {
		request.Path = firstURI(rules, routing)
		rule = firstMet(rules, request)
	}
	if rule == nil {
		return nil, noRule(kindVirtualService, digString(vs, "metadata", "name"), request)
	}
	routes := digObjects(rule, "route")
	var to []destination
	for _, r := range routes {
		weight, said := number(r["weight"])
		if !said && len(routes) == 1 {
			weight = 1
		}
		service, _, _ := strings.Cut(digString(r, "destination", "host"), ".")
		to = append(to, destination{service, float64(weight)})
	}
	return to, nil
}

func firstMet(rules []Object, request Probe) Object {
	for _, rule := range rules {
		matches := digObjects(rule, "match")
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

func meetsIstio(m Object, request Probe) bool {
	if uri := digObject(m, "uri"); uri != nil && !meetsString(uri, request.path(), true) {
		return false
	}
	if method := digObject(m, "method"); method != nil && !meetsString(method, request.method(), true) {
		return false
	}
	for name := range digObject(m, "headers") {
		value := header(request, name)
		if !meetsString(digObject(m, "headers", name), value, value != "") {
			return false
		}
	}
	for name := range digObject(m, "queryParams") {
		value, there := request.Query[name]
		if !meetsString(digObject(m, "queryParams", name), value, there) {
			return false
		}
	}
	return true
}

// meetsString compares as Istio's StringMatch does; an empty one asks for presence.
func meetsString(m Object, value string, there bool) bool {
	if !there {
		return false
	}
	if exact, is := m["exact"].(string); is {
		return value == exact
	}
	if prefix, is := m["prefix"].(string); is {
		return strings.HasPrefix(value, prefix)
	}
	if expression, is := m["regex"].(string); is {
		return fully(expression, value)
	}
	return true
}

func firstURI(rules []Object, routing rollout.Routing) string {
	for _, rule := range rules {
		for _, r := range digObjects(rule, "route") {
			if host, _, _ := strings.Cut(digString(r, "destination", "host"), "."); host != routing.Service {
				continue
			}
			for _, m := range digObjects(rule, "match") {
				if uri := orElse(digString(m, "uri", "exact"), digString(m, "uri", "prefix")); uri != "" {
					return uri
				}
			}
		}
	}
	return "/"
}
