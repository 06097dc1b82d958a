package traffic

import (
	"cmp"
	"maps"
	"strings"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// Version names the pods of one version.
type Version struct {
	// Workload is the workload's name, Label the name of the pods' revision label, Hash its value.
	Workload, Label, Hash string
	// Labels are more labels of the version's pods (patchPodTemplateMetadata).
	Labels map[string]string
	// Claim is written on what is made.
	Claim string
}

// ofTheServer are fields of a Service that the API server or a load balancer hands out, each to one Service only.
var ofTheServer = []string{
	"clusterIPs", "externalIPs", "ipFamilies", "ipFamilyPolicy", "loadBalancerIP", "loadBalancerClass", "loadBalancerSourceRanges",
	"allocateLoadBalancerNodePorts", "healthCheckNodePort", "externalTrafficPolicy", "externalName",
}

// CanaryService is the Service <name>-canary that selects one version's pods: the stable one without its addresses and ports. It is of type
// ClusterIP, not LoadBalancer, since requests come by the routes only. A headless Service stays headless.
func CanaryService(stable Object, name string, v Version) Object {
	spec := clone(DigObject(stable, "spec"))
	if DigString(spec, "clusterIP") != "None" {
		delete(spec, "clusterIP")
	}
	for _, field := range ofTheServer {
		delete(spec, field)
	}
	if DigString(spec, "type") == "LoadBalancer" {
		spec["type"] = "ClusterIP"
	}
	for _, port := range DigObjects(spec, "ports") {
		delete(port, "nodePort")
	}
	spec["selector"] = anyMap(v.selector(SelectorOf(stable)))
	return Object{"apiVersion": "v1", "kind": "Service", "metadata": createdMetadata(stable, name, v), "spec": spec}
}

// SelectorOf is the selector of a Service.
func SelectorOf(service Object) map[string]string { return digStrings(service, "spec", "selector") }

// selector is a Service's own selector narrowed to the version's pods.
func (v Version) selector(own map[string]string) map[string]string {
	out := maps.Clone(own)
	maps.Copy(out, v.Labels)
	out[v.Label] = v.Hash
	return out
}

// pathSelector is the place that pinning changes.
const pathSelector = "/spec/selector"

// Pinned derives the stable Service that selects one version's pods only.
func Pinned(v Version) func(original Object) (Object, []string, error) {
	return func(original Object) (Object, []string, error) {
		jsonpatch.Put(original, pathSelector, anyMap(v.selector(SelectorOf(original))))
		return original, []string{pathSelector}, nil
	}
}

// CanarySelectorPaths are the places of a canary Service that are ours to keep.
var CanarySelectorPaths = []string{pathSelector}

// createdMetadata is the metadata of an object that is made beside another: its labels and annotations, without those that speak of the
// other alone, the claim, and an owner reference, so that it goes when the other is deleted.
func createdMetadata(of Object, name string, v Version) Object {
	annotations := ownAnnotations(of)
	annotations[rollout.AnnotationHeldBy] = v.Claim
	labels := digStrings(of, "metadata", "labels")
	labels[strategy.LabelCanaryOf], labels[workloadops.LabelClaimed] = strategy.CanaryOf(v.Workload), workloadops.LabelClaimedValue
	return Object{
		"name": name, "namespace": DigString(of, "metadata", "namespace"),
		"labels": anyMap(labels), "annotations": anyMap(annotations),
		"ownerReferences": []any{Object{
			"apiVersion": DigString(of, "apiVersion"), "kind": DigString(of, "kind"),
			"name": DigString(of, "metadata", "name"), "uid": DigString(of, "metadata", "uid"),
		}},
	}
}

// ownAnnotations are the annotations of an object that are its user's.
func ownAnnotations(o Object) map[string]string {
	out := annotationsOf(o)
	maps.DeleteFunc(out, reserved)
	return out
}

// reserved says that an annotation is not its object's user's.
func reserved(key, _ string) bool {
	return key == annotationApplied || key == rollout.AnnotationOriginalSpec || strings.HasPrefix(key, "slipway.io/")
}

// PodLabels are the labels that a workload's template gives its pods.
func PodLabels(workload Object) map[string]string {
	return digStrings(workload, "spec", "template", "metadata", "labels")
}

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

// SecondCanary says, as "<host><path>", where another Ingress is a canary of what the release routes by the stable one: the same class, host and
// path. A controller takes one canary of them, and leaves the other out or mixes both; "" when there is no such place.
func SecondCanary(stable, other Object, routing ServicePair) string {
	if _, is := CanaryAnnotations(other); !is || ingressClass(stable) != ingressClass(other) {
		return ""
	}
	theirs := map[string]bool{}
	eachPath(other, func(place string, _ Object) { theirs[place] = true })
	found := ""
	eachPath(stable, func(place string, backend Object) {
		if found == "" && theirs[place] && DigString(backend, "service", "name") == routing.Stable {
			found = place
		}
	})
	return found
}

// eachPath goes through the places that an Ingress routes, "*" standing for every host; what no rule names is the place "*".
func eachPath(ingress Object, do func(place string, backend Object)) {
	if backend := DigObject(ingress, "spec", "defaultBackend"); len(backend) > 0 {
		do("*", backend)
	}
	for _, rule := range DigObjects(ingress, "spec", "rules") {
		for _, path := range DigObjects(rule, "http", "paths") {
			do(cmp.Or(DigString(rule, "host"), "*")+cmp.Or(DigString(path, "path"), "/"), DigObject(path, "backend"))
		}
	}
}

// ingressClass is the class of an Ingress, by its field or the annotation of before; "" is the cluster's default.
func ingressClass(ingress Object) string {
	return cmp.Or(DigString(ingress, "spec", "ingressClassName"), annotationsOf(ingress)["kubernetes.io/ingress.class"])
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
	paths := []string{pathSpec}
	for key := range ownAnnotations(canary) {
		paths = append(paths, jsonpatch.Annotation(key))
	}
	return paths
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
