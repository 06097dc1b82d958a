package serving

import (
	"slices"
	"strings"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// accessDomains are the domains that may call a port, in the order of the spec and apart by commas. Without a network policy
// all domains may call the Cluster ports; with one, the domains with a role that it lets call the port. A single domain needs no leave.
func (d deployed) accessDomains(p kuscia.ContainerPort) string {
	policy := d.template.NetworkPolicy
	var all, allowed []string
	for _, party := range d.version.Spec.Parties {
		if !slices.Contains(all, party.DomainID) {
			all = append(all, party.DomainID)
		}
		if policy != nil && lets(policy, party.Role, p.Name) && !slices.Contains(allowed, party.DomainID) {
			allowed = append(allowed, party.DomainID)
		}
	}
	switch {
	case len(all) < 2:
		return ""
	case policy != nil:
		return strings.Join(allowed, ",")
	case p.Scope == kuscia.ScopeCluster:
		return strings.Join(all, ",")
	}
	return ""
}

// lets says whether a policy lets a role call a port.
func lets(policy *kuscia.NetworkPolicy, role, port string) bool {
	return slices.ContainsFunc(policy.Ingresses, func(in kuscia.Ingress) bool {
		return slices.Contains(in.From.Roles, role) && slices.Contains(in.Ports, kuscia.IngressPort{Port: port})
	})
}
