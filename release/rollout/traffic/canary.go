package traffic

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// Version names the pods of one version.
type Version struct {
	// Workload is the workload's name, Label the name of the pods' revision label, Hash its value.
	Workload, Label, Hash string
	// Labels are more labels of the version's pods (patchPodTemplateMetadata).
	Labels map[string]string
	// Claim is written on the objects that are created.
	Claim string
}

// serverFields are fields of a Service that the API server or a load balancer assigns to one Service only.
var serverFields = []string{
	"clusterIPs", "externalIPs", "ipFamilies", "ipFamilyPolicy", "loadBalancerIP", "loadBalancerClass",
	"loadBalancerSourceRanges",
	"allocateLoadBalancerNodePorts", "healthCheckNodePort", "externalTrafficPolicy", "externalName",
}

// CanaryService returns the Service <name>-canary that selects one version's pods: a copy of the stable one without its
// addresses and node ports. It is of type ClusterIP instead of LoadBalancer, since requests arrive by the routes only.
// A headless Service stays headless.
func CanaryService(stable Object, name string, v Version) Object {
	spec := clone(jsonpatch.DigObject(stable, "spec"))
	if jsonpatch.DigString(spec, "clusterIP") != "None" {
		delete(spec, "clusterIP")
	}
	for _, field := range serverFields {
		delete(spec, field)
	}
	if jsonpatch.DigString(spec, "type") == "LoadBalancer" {
		spec["type"] = "ClusterIP"
	}
	for _, port := range jsonpatch.DigObjects(spec, "ports") {
		delete(port, "nodePort")
	}
	spec["selector"] = jsonpatch.Normalise(v.selector(SelectorOf(stable)))
	meta := createdMetadata(stable, name, annotationsOf(stable), v)
	return Object{"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}
}

// SelectorOf returns the selector of a Service.
func SelectorOf(service Object) map[string]string { return digStrings(service, "spec", "selector") }

// Unmatched returns the first label of a selector, by name, that these labels do not have; "" if they match it.
func Unmatched(selector, labels map[string]string) (key string) {
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		if value, there := labels[key]; !there || value != selector[key] {
			return key
		}
	}
	return ""
}

// selector returns a Service's own selector narrowed to the version's pods.
func (v Version) selector(own map[string]string) map[string]string {
	out := maps.Clone(own)
	maps.Copy(out, v.Labels)
	out[v.Label] = v.Hash
	return out
}

// pathSelector is the place that pinning changes.
const pathSelector = "/spec/selector"

// Pinned derives a stable Service that selects one version's pods only.
func Pinned(v Version) func(original Object) (Object, []string, error) {
	return func(original Object) (Object, []string, error) {
		jsonpatch.Put(original, pathSelector, jsonpatch.Normalise(v.selector(SelectorOf(original))))
		return original, []string{pathSelector}, nil
	}
}

// CanarySelectorPaths are the places of a canary Service that a release owns.
var CanarySelectorPaths = []string{pathSelector}

// createdMetadata returns the metadata of an object that is created next to another: these annotations and the other's
// labels, except reserved ones, the claim, and an owner reference, so that it is deleted with the other.
func createdMetadata(of Object, name string, annotations map[string]string, v Version) Object {
	kept := map[string]string{rollout.AnnotationHeldBy: v.Claim}
	for name, value := range annotations {
		if !reserved(name, value) {
			kept[name] = value
		}
	}
	labels := digStrings(of, "metadata", "labels")
	labels[strategy.LabelCanaryOf], labels[workload.LabelClaimed] = strategy.CanaryOf(v.Workload),
		workload.LabelClaimedValue
	return Object{
		"name": name, "namespace": jsonpatch.DigString(of, "metadata", "namespace"),
		"labels": jsonpatch.Normalise(labels), "annotations": jsonpatch.Normalise(kept),
		"ownerReferences": []any{Object{
			"apiVersion": jsonpatch.DigString(of, "apiVersion"), "kind": jsonpatch.DigString(of, "kind"),
			"name": jsonpatch.DigString(of, "metadata", "name"), "uid": jsonpatch.DigString(of, "metadata", "uid"),
		}},
	}
}

// ownAnnotations returns the user's annotations of an object.
func ownAnnotations(o Object) map[string]string {
	out := annotationsOf(o)
	maps.DeleteFunc(out, reserved)
	return out
}

// reserved reports whether an annotation does not belong to the user.
func reserved(key, _ string) bool {
	return key == annotationApplied || key == rollout.AnnotationOriginalSpec || strings.HasPrefix(key, "slipway.io/")
}

// PodLabels returns the labels that a workload's template gives its pods.
func PodLabels(workload Object) map[string]string {
	return digStrings(workload, "spec", "template", "metadata", "labels")
}

// CanaryIngress returns the Ingress <name>-canary with these annotations: what leads to the stable Service in the
// stable Ingress leads to the canary Service in it. Rules for other Services, rules without http and backends that are
// not Services are left out; class, TLS and labels are the same. It fails with failure.Refused if nothing of the
// Ingress leads to the Service.
func CanaryIngress(stable Object, routing ServicePair, annotations map[string]string, v Version) (Object, error) {
	spec := clone(jsonpatch.DigObject(stable, "spec"))
	var rules []any
	for _, rule := range jsonpatch.DigObjects(spec, "rules") {
		var paths []any
		for _, path := range jsonpatch.DigObjects(rule, "http", "paths") {
			if redirectToCanary(jsonpatch.DigObject(path, "backend"), routing) {
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
	byDefault := redirectToCanary(jsonpatch.DigObject(spec, "defaultBackend"), routing)
	if !byDefault {
		delete(spec, "defaultBackend")
	}
	name := jsonpatch.DigString(stable, "metadata", "name")
	if len(rules) == 0 && !byDefault {
		return nil, refuse("Ingress %s has no rule that leads to Service %s: name another Ingress or another Service",
			name, routing.Stable)
	}
	meta := createdMetadata(stable, name+strategy.CanarySuffix, annotations, v)
	return Object{"apiVersion": jsonpatch.DigString(stable, "apiVersion"), "kind": "Ingress", "metadata": meta,
		"spec": spec}, nil
}

// SecondCanary returns, as "<host><path>", where another Ingress is a canary of what the release routes by the stable
// one: same class, host and path. A controller uses one of such canaries and ignores the other, or mixes both. "" if
// there is no such place.
func SecondCanary(stable, other Object, routing ServicePair) string {
	if _, is := CanaryAnnotations(other); !is || ingressClass(stable) != ingressClass(other) {
		return ""
	}
	theirs := map[string]bool{}
	eachPath(other, func(place string, _ Object) { theirs[place] = true })
	found := ""
	eachPath(stable, func(place string, backend Object) {
		if found == "" && theirs[place] && jsonpatch.DigString(backend, "service", "name") == routing.Stable {
			found = place
		}
	})
	return found
}

// eachPath calls do for each place that an Ingress routes. "*" as host means every host; the default backend is the
// place "*".
func eachPath(ingress Object, do func(place string, backend Object)) {
	if backend := jsonpatch.DigObject(ingress, "spec", "defaultBackend"); len(backend) > 0 {
		do("*", backend)
	}
	for _, rule := range jsonpatch.DigObjects(ingress, "spec", "rules") {
		for _, path := range jsonpatch.DigObjects(rule, "http", "paths") {
			do(cmp.Or(jsonpatch.DigString(rule, "host"), "*")+cmp.Or(jsonpatch.DigString(path, "path"), "/"),
				jsonpatch.DigObject(path, "backend"))
		}
	}
}

// ingressClass returns the class of an Ingress, from its field or the legacy annotation; "" is the cluster's default.
func ingressClass(ingress Object) string {
	return cmp.Or(jsonpatch.DigString(ingress, "spec", "ingressClassName"),
		annotationsOf(ingress)["kubernetes.io/ingress.class"])
}

// ServicePair is the stable Service and the canary's; both are the same if there are no canary Services.
type ServicePair struct{ Stable, Canary string }

// Same reports that there is no canary Service.
func (p ServicePair) Same() bool { return p.Stable == p.Canary }

// redirectToCanary points a backend at the canary Service; it reports whether the backend was the stable Service.
func redirectToCanary(backend Object, routing ServicePair) bool {
	if jsonpatch.DigString(backend, "service", "name") != routing.Stable {
		return false
	}
	jsonpatch.Put(backend, "/service/name", routing.Canary)
	return true
}

// IngressPaths returns the places of a canary Ingress that a release owns: its spec and all its annotations except the
// marks.
func IngressPaths(canary Object) []string {
	paths := []string{pathSpec}
	for key := range ownAnnotations(canary) {
		paths = append(paths, jsonpatch.Annotation(key))
	}
	return paths
}

// queryPrefix is the prefix of the annotations that only class mse has.
const queryPrefix = "mse.ingress.kubernetes.io/canary-by-query"

// canaryPrefixes are the prefixes that the classes use for the canary annotations of ingress-nginx.
var canaryPrefixes = []string{"nginx.ingress.kubernetes.io/", "alb.ingress.kubernetes.io/"}

// CanaryAnnotations returns the canary annotations of an Ingress without their prefix; is reports whether it is a
// canary at all.
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
