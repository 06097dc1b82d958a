package serving

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// The allocated port numbers: from lowestAllocated up to, but excluding, endAllocated.
const (
	lowestAllocated = 20000
	endAllocated    = 32767
)

// maxPorts is the maximum number of ports of a party's pod: far fewer than the allocatable numbers, so that each port
// finds one.
const maxPorts = 256

// maxRounds bounds the search for a free number. With at most maxPorts ports a handful of rounds suffices.
const maxRounds = 1000

// containerPorts returns the ports of all containers in the order of the template, with defaults but without allocated
// numbers.
func containerPorts(t kuscia.DeployTemplate) []kuscia.ContainerPort {
	var ports []kuscia.ContainerPort
	for _, c := range t.Spec.Containers {
		for _, p := range c.Ports {
			p.Protocol, p.Scope = cmp.Or(p.Protocol, kuscia.ProtocolHTTP), cmp.Or(p.Scope, kuscia.ScopeLocal)
			ports = append(ports, p)
		}
	}
	return ports
}

// allocate assigns a number to each port without one. The number depends only on serving, party and port name, so a
// port keeps it in every version. Each port has an endless sequence of candidates and takes the first free one; if two
// ports have the same candidate in a round, the one with the lesser name gets it.
func allocate(id string, party kuscia.Party, ports []kuscia.ContainerPort) {
	taken := map[int32]bool{}
	var pending []*kuscia.ContainerPort
	for i := range ports {
		if ports[i].Port != 0 {
			taken[ports[i].Port] = true
		} else {
			pending = append(pending, &ports[i])
		}
	}
	slices.SortStableFunc(pending, func(a, b *kuscia.ContainerPort) int { return strings.Compare(a.Name, b.Name) })
	for round := 0; len(pending) > 0 && round < maxRounds; round++ {
		var losers []*kuscia.ContainerPort
		for _, p := range pending {
			choice := portChoice(id, party, p.Name, round)
			if taken[choice] {
				losers = append(losers, p)
				continue
			}
			taken[choice] = true
			p.Port = choice
		}
		pending = losers
	}
}

func portChoice(id string, party kuscia.Party, port string, round int) int32 {
	key := strings.Join([]string{id, party.DomainID, party.Role, port, strconv.Itoa(round)}, "\x00")
	sum := sha256.Sum256([]byte(key))
	return lowestAllocated + int32(binary.BigEndian.Uint64(sum[:8])%(endAllocated-lowestAllocated))
}

// Endpoint is the address of a party's port.
type Endpoint struct {
	PortName string `json:"portName"`
	Scope    string `json:"scope"`
	// Endpoint is host and port in Kuscia's format: a Cluster port, which is reached through Kuscia's gateway, has no
	// port number there.
	Endpoint string `json:"endpoint"`
	// Port is the port number on which the pods listen.
	Port int32 `json:"port"`
}

// Endpoints returns the addresses of a party's Domain and Cluster ports, in the order of the template. A party that
// cannot be rendered has none.
func Endpoints(v Version, party int) []Endpoint {
	d, err := v.renderInput(party)
	if err != nil {
		return nil
	}
	var all []Endpoint
	for _, p := range d.exposedPorts() {
		host := serviceName(d.party, d.name, p.Name) + "." + d.party.DomainID + ".svc"
		if p.Scope == kuscia.ScopeDomain {
			host = fmt.Sprintf("%s:%d", host, p.Port)
		}
		all = append(all, Endpoint{PortName: p.Name, Scope: string(p.Scope), Endpoint: host, Port: p.Port})
	}
	return all
}

func (d renderInput) exposedPorts() []kuscia.ContainerPort {
	return slices.DeleteFunc(slices.Clone(d.ports), func(p kuscia.ContainerPort) bool {
		return p.Scope != kuscia.ScopeCluster && p.Scope != kuscia.ScopeDomain
	})
}

// clusterDefine is CLUSTER_DEFINE: the parties and their addresses. Keys and order are those of Kuscia's message.
type clusterDefine struct {
	Parties         []clusterParty `json:"parties"`
	SelfPartyIdx    int            `json:"selfPartyIdx"`
	SelfEndpointIdx int            `json:"selfEndpointIdx"`
}

type clusterParty struct {
	Name     string           `json:"name"`
	Role     string           `json:"role"`
	Services []clusterService `json:"services"`
}

type clusterService struct {
	PortName  string   `json:"portName"`
	Endpoints []string `json:"endpoints"`
}

// clusterParties returns all parties in the order of the spec. A party that cannot be rendered has no services; Check
// reports it.
func (v Version) clusterParties() []clusterParty {
	parties := make([]clusterParty, 0, len(v.Spec.Parties))
	for i, p := range v.Spec.Parties {
		services := []clusterService{}
		for _, e := range Endpoints(v, i) {
			services = append(services, clusterService{PortName: e.PortName, Endpoints: []string{e.Endpoint}})
		}
		parties = append(parties, clusterParty{Name: p.DomainID, Role: p.Role, Services: services})
	}
	return parties
}

type allocatedPort struct {
	Name     string `json:"name"`
	Port     int32  `json:"port"`
	Scope    string `json:"scope"`
	Protocol string `json:"protocol"`
}

// allocatedPorts returns ALLOCATED_PORTS: the numbers of all ports of the pod, including declared ones.
func (d renderInput) allocatedPorts() string {
	all := make([]allocatedPort, len(d.ports))
	for i, p := range d.ports {
		all[i] = allocatedPort{Name: p.Name, Port: p.Port, Scope: string(p.Scope), Protocol: string(p.Protocol)}
	}
	return compact(map[string]any{"ports": all})
}

// compact encodes a message of strings and numbers as JSON, which cannot fail.
func compact(message any) string {
	raw, _ := json.Marshal(message)
	return string(raw)
}

// accessDomains returns the domains that may call a port, joined by commas in the order of the spec: those that the
// network policy allows; without a policy all domains for a Cluster port, and none otherwise. With a single domain the
// list is empty.
func (d renderInput) accessDomains(p kuscia.ContainerPort) string {
	policy := d.template.NetworkPolicy
	var all, allowed []string
	for _, party := range d.version.Spec.Parties {
		if !slices.Contains(all, party.DomainID) {
			all = append(all, party.DomainID)
		}
		if policy != nil && allows(policy, party.Role, p.Name) && !slices.Contains(allowed, party.DomainID) {
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

// allows reports whether a policy lets a role call a port.
func allows(policy *kuscia.NetworkPolicy, role, port string) bool {
	return slices.ContainsFunc(policy.Ingresses, func(in kuscia.Ingress) bool {
		return slices.Contains(in.From.Roles, role) && slices.Contains(in.Ports, kuscia.IngressPort{Port: port})
	})
}
