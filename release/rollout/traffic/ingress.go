package traffic

import (
	"maps"
	"strings"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// CanaryIngress is the Ingress <name>-canary, with these annotations: what of the stable Ingress leads to the stable Service leads to the
// canary Service in it. Rules for other Services, rules without http and backends that are no Service are left out; class, TLS and labels
// are the same. It fails with failure.Refused when nothing of the Ingress leads to the Service.
func CanaryIngress(stable Object, routing ServicePair, annotations map[string]string, v Version) (Object, error) {
	spec := clone(DigObject(stable, "spec"))
	var rules []any
	for _, rule := range DigObjects(spec, "rules") {
		var paths []any
		for _, path := range DigObjects(rule, "http", "paths") {
			if redirected(DigObject(path, "backend"), routing) {
				paths = append(paths, path)
			}
		}
		if len(paths) > 0 {
			jsonpatch.Put(rule, "/http/paths", paths)
			rules = append(rules, rule)
		}
	}
	delete(spec, "rules")
	if len(rules) > 0 {
		spec["rules"] = rules
	}
	byDefault := redirected(DigObject(spec, "defaultBackend"), routing)
	if !byDefault {
		delete(spec, "defaultBackend")
	}
	name := DigString(stable, "metadata", "name")
	if len(rules) == 0 && !byDefault {
		return nil, refuse("Ingress %s has no rule that leads to Service %s: name another Ingress or another Service", name, routing.Stable)
	}
	meta := createdMetadata(stable, name+strategy.CanarySuffix, v)
	all := map[string]string{}
	maps.Copy(all, annotations)
	maps.DeleteFunc(all, reserved)
	all[rollout.AnnotationHeldBy] = v.Claim
	meta["annotations"] = anyMap(all)
	return Object{"apiVersion": DigString(stable, "apiVersion"), "kind": "Ingress", "metadata": meta, "spec": spec}, nil
}

// ServicePair is the stable Service and the canary's; they are the same where there are no canary Services.
type ServicePair struct{ Stable, Canary string }

// Same says that there is no canary Service.
func (p ServicePair) Same() bool { return p.Stable == p.Canary }

// redirected points a backend at the canary Service; it says whether it is one of the stable Service.
func redirected(backend Object, routing ServicePair) bool {
	if DigString(backend, "service", "name") != routing.Stable {
		return false
	}
	jsonpatch.Put(backend, "/service/name", routing.Canary)
	return true
}

// IngressPaths are the places of a canary Ingress that are ours: its spec and all of its annotations but the marks.
func IngressPaths(canary Object) []string {
	paths := []string{"/spec"}
	for key := range ownAnnotations(canary) {
		paths = append(paths, jsonpatch.Annotation(key))
	}
	return paths
}

// IsCanaryIngress says whether an Ingress is itself a canary by the annotations of one of the classes.
func IsCanaryIngress(ingress Object) bool {
	_, is := CanaryAnnotations(ingress)
	return is
}

// queryPrefix is where class mse keeps what only it knows.
const queryPrefix = "mse.ingress.kubernetes.io/canary-by-query"

// canaryPrefixes are the prefixes under which the classes keep the canary annotations of ingress-nginx.
var canaryPrefixes = []string{"nginx.ingress.kubernetes.io/", "alb.ingress.kubernetes.io/"}

// CanaryAnnotations are the canary annotations of an Ingress without their prefix; is says whether it is a canary at all.
func CanaryAnnotations(ingress Object) (annotations map[string]string, is bool) {
	all := annotationsOf(ingress)
	for _, prefix := range canaryPrefixes {
		if all[prefix+"canary"] != "true" {
			continue
		}
		out := map[string]string{}
		for key, value := range all {
			if rest, ours := strings.CutPrefix(key, prefix); ours {
				out[rest] = value
			}
			if rest, query := strings.CutPrefix(key, queryPrefix); query {
				out["canary-by-query"+rest] = value
			}
		}
		return out, true
	}
	return nil, false
}
