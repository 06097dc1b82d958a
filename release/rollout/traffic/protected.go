package traffic

import (
	"maps"
	"slices"
	"strings"
)

// protectedDomains are the prefixes of labels and annotations, with those below them, by which an engine, kubectl, a
// GitOps tool or Pod Security recognises an object: a script that changes one could have it ignored, adopted or
// deleted.
var protectedDomains = []string{"slipway.io", "rollouts.kruise.io", "kubectl.kubernetes.io", "meta.helm.sh",
	"argocd.argoproj.io", "fluxcd.io", "pod-security.kubernetes.io"}

// labelManagedBy names the tool that owns an object.
const labelManagedBy = "app.kubernetes.io/managed-by"

// protected reports whether no script may change a label or an annotation.
func protected(key string) bool {
	domain, _, prefixed := strings.Cut(key, "/")
	return key == labelManagedBy || prefixed &&
		slices.ContainsFunc(protectedDomains, func(d string) bool { return inDomain(domain, d) })
}

// guardsIngress reports whether an annotation of an Ingress decides who may send requests, or is configuration of the
// controller's proxy itself, under any controller's prefix.
func guardsIngress(key string) bool {
	_, name, prefixed := strings.Cut(key, "/")
	return prefixed && (strings.HasPrefix(name, "auth-") || strings.HasSuffix(name, "-snippet") ||
		strings.HasSuffix(name, "-snippets"))
}

// forbids reports whether a script may not change this label or annotation of an object; ingress means that the object
// is an Ingress.
func (s FoundScript) forbids(key string, ingress bool) bool {
	return protected(key) || ingress && s.Tenant && guardsIngress(key)
}

// changedKeys returns the keys, in order, that two maps have with different values, or that only one of them has.
func changedKeys(before, after map[string]string) []string {
	all := maps.Clone(before)
	maps.Copy(all, after)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(key string) bool {
		was, there := before[key]
		is, still := after[key]
		return there == still && was == is
	})
}
