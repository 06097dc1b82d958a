package traffic

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// FlagKinds and FlagTenantScripts are the settings of a worker that Reach is made from.
const (
	FlagKinds         = "--traffic-kinds"
	FlagTenantScripts = "--tenant-scripts"
)

// Reach is what the releases of a worker may route by. The author of a release names the objects, but the worker
// writes them, with its own permissions: without a limit he could have any object of his namespace changed.
type Reach struct {
	// Kinds are the only kinds of routes that releases change; empty: the default kinds (see Refuses).
	Kinds []Kind
	// TenantScripts are the namespaces whose own scripts are used.
	TenantScripts []string
}

// ReadsScriptsOf reports whether the scripts in a namespace of workloads are used.
func (r Reach) ReadsScriptsOf(namespace string) bool {
	return slices.Contains(r.TenantScripts, namespace)
}

// Refuses returns why releases may not change objects of a kind, "" if they may. By default they may change the kinds
// of the built-in scripts, the routes of the Gateway API, and each kind that an administrator has written a script for
// (scripted). A script of a tenant permits nothing.
func (r Reach) Refuses(k Kind, scripted bool) string {
	if reason := k.Forbidden(); reason != "" {
		return reason
	}
	switch {
	case len(r.Kinds) == 0 && (scripted || k.isRoute()):
		return ""
	case len(r.Kinds) == 0:
		return fmt.Sprintf("%s is no kind that releases of this party's worker route by", k.Name())
	case slices.ContainsFunc(r.Kinds, func(listed Kind) bool { return listed.Name() == k.Name() }):
		return ""
	}
	return fmt.Sprintf("%s is not in %s of this party's worker", k.Name(), FlagKinds)
}

// gatewayRoutes are the routes of the Gateway API, which is the group groupGateway.
var gatewayRoutes = []string{"httproutes", "grpcroutes", "tcproutes", "tlsroutes", "udproutes"}

// isRoute reports whether a kind is one that a built-in script changes, or a route of the Gateway API.
func (k Kind) isRoute() bool {
	return k.Group == groupGateway && slices.Contains(gatewayRoutes, k.Resource) ||
		slices.ContainsFunc(Kinds(), func(known Kind) bool { return known.Name() == k.Name() })
}

// Name returns the kind as resource.group.
func (k Kind) Name() string {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}.String()
}

// ParseKind reads a kind of custom object from resource.group.
func ParseKind(text string) (Kind, error) {
	r := schema.ParseGroupResource(text)
	if r.Group == "" || r.Resource == "" || strings.ToLower(text) != text {
		return Kind{}, fmt.Errorf("%s is not a custom resource: use RESOURCE.GROUP, such as "+
			"virtualservices.networking.istio.io", text)
	}
	return CustomKind(r.Group, r.Resource), nil
}

// Forbidden returns why no release changes objects of a kind by a script, whatever a worker's list names; "" if a list
// decides. Workloads, permissions and policies are forbidden, as is all else that Kubernetes itself defines, except
// Ingresses and what the Gateway API has for routing.
func (k Kind) Forbidden() string {
	var of string
	switch {
	case k.Group == "":
		of = "Kubernetes' core group"
	case inDomain(k.Group, "slipway.io"), inDomain(k.Group, "kruise.io"):
		of = "the group " + k.Group
	case k.Group == groupNetworking && k.Resource == "ingresses":
		return ""
	case k.Group == groupGateway && k.Resource != "referencegrants":
		return ""
	case !strings.Contains(k.Group, "."), inDomain(k.Group, "k8s.io"):
		of = "Kubernetes' group " + k.Group
	default:
		return ""
	}
	return fmt.Sprintf("%s is of %s, whose objects are never changed to route requests", k.Name(), of)
}

// inDomain reports whether a DNS name is a domain or one below it.
func inDomain(name, domain string) bool { return name == domain || strings.HasSuffix(name, "."+domain) }
