package shares

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
)

func (o Objects) throughIngress(routing strategy.Routing, request Probe) ([]destination, error) {
	name := routing.Ingress.Name
	stable := find(o.Ingresses, name)
	if stable == nil {
		return nil, MissingError{"Ingress", name}
	}
	host, path, ok := entryOf(stable, routing.Service, request)
	if !ok {
		return nil, noRule("Ingress", name, request)
	}
	to := backendOf(stable, host, path)
	if to == "" {
		return nil, noRule("Ingress", name, request)
	}
	if len(o.endpoints(to)) == 0 {
		// ingress-nginx considers a canary only if the main backend has endpoints (kubernetes/ingress-nginx issue
		// 9635).
		return []destination{{to, 1}}, nil
	}
	for _, canary := range o.Ingresses {
		annotations, is := traffic.CanaryAnnotations(canary)
		if !is || jsonpatch.DigString(canary, "metadata", "name") == name {
			continue
		}
		if service := backendOf(canary, host, path); service != "" {
			weight := canaryShare(annotations, request)
			return []destination{{to, 1 - weight}, {service, weight}}, nil
		}
	}
	return []destination{{to, 1}}, nil
}

// canaryShare returns the share of such requests that ingress-nginx sends to the canary: by header, then by cookie,
// then by weight.
func canaryShare(a map[string]string, request Probe) float64 {
	if name := a["canary-by-header"]; name != "" {
		if decided, to := byHeader(a, header(request, name)); decided {
			return to
		}
	}
	if name := a["canary-by-query"]; name != "" &&
		valueMatches(request.Query[name], a["canary-by-query-value"], a["canary-by-query-pattern"]) {
		return 1
	}
	if name := a["canary-by-cookie"]; name != "" {
		switch request.Cookies[name] {
		case "always":
			return 1
		case "never":
			return 0
		}
	}
	weight, err := strconv.ParseFloat(a["canary-weight"], 64)
	if err != nil {
		return 0
	}
	total, err := strconv.ParseFloat(a["canary-weight-total"], 64)
	if err != nil || total <= 0 {
		total = 100
	}
	return min(weight/total, 1)
}

// byHeader decides by the header's value. A value or pattern that does not match decides nothing; without either, the
// values always and never decide.
func byHeader(a map[string]string, value string) (decided bool, share float64) {
	exact, pattern := a["canary-by-header-value"], a["canary-by-header-pattern"]
	switch {
	case exact != "" || pattern != "":
		return valueMatches(value, exact, pattern), 1
	case value == "always":
		return true, 1
	case value == "never":
		return true, 0
	default:
		return false, 0
	}
}

// valueMatches compares with an exact value, else with a pattern that may match anywhere; an absent value matches
// nothing.
func valueMatches(value, exact, pattern string) bool {
	if value == "" {
		return false
	}
	if exact != "" {
		return value == exact
	}
	found, err := regexp.MatchString(pattern, value)
	return err == nil && found
}

func header(request Probe, name string) string {
	for key, value := range request.Headers {
		if strings.EqualFold(key, name) {
			return value
		}
	}
	return ""
}

// entryOf returns the host and path of a request: those of the probe, or of the first rule for the Service where the
// probe leaves them empty.
func entryOf(ingress traffic.Object, service string, request Probe) (host, path string, ok bool) {
	host, path = request.Host, request.Path
	for _, rule := range jsonpatch.DigObjects(ingress, "spec", "rules") {
		ruleHost := jsonpatch.DigString(rule, "host")
		if request.Host != "" && !hostMatches(ruleHost, request.Host) {
			continue
		}
		for _, p := range jsonpatch.DigObjects(rule, "http", "paths") {
			if jsonpatch.DigString(p, "backend", "service", "name") != service {
				continue
			}
			if host == "" {
				host = strings.Replace(ruleHost, "*", "any", 1)
			}
			if path == "" {
				path = cmp.Or(jsonpatch.DigString(p, "path"), "/")
			}
			return host, path, true
		}
	}
	if path == "" {
		path = "/"
	}
	return host, path, true
}

// backendOf returns the Service to which an Ingress sends a request, "" if it has no rule for it: the longest path of
// the host's rules wins, an exact one first; then the default backend.
func backendOf(ingress traffic.Object, host, path string) string {
	best, service := -1, ""
	for _, rule := range jsonpatch.DigObjects(ingress, "spec", "rules") {
		if !hostMatches(jsonpatch.DigString(rule, "host"), host) {
			continue
		}
		for _, p := range jsonpatch.DigObjects(rule, "http", "paths") {
			value := cmp.Or(jsonpatch.DigString(p, "path"), "/")
			rank := len(value) * 2
			switch jsonpatch.DigString(p, "pathType") {
			case "Exact":
				if value != path {
					continue
				}
				rank++
			default:
				if !traffic.PrefixMatches(value, path) {
					continue
				}
			}
			if rank > best {
				best, service = rank, jsonpatch.DigString(p, "backend", "service", "name")
			}
		}
	}
	if best < 0 {
		return jsonpatch.DigString(ingress, "spec", "defaultBackend", "service", "name")
	}
	return service
}

// hostMatches reports whether a rule's host covers a request's host: "" covers any, "*.x" one more label.
func hostMatches(rule, host string) bool {
	if rule == "" || rule == host {
		return true
	}
	suffix, wild := strings.CutPrefix(rule, "*")
	if !wild {
		return false
	}
	label, has := strings.CutSuffix(host, suffix)
	return has && label != "" && !strings.Contains(label, ".")
}
