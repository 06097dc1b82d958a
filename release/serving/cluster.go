package serving

import (
	"encoding/json"
	"fmt"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// Endpoint is where a port of a party is reached.
type Endpoint struct {
	PortName string `json:"portName"`
	Scope    string `json:"scope"`
	// Endpoint is host and port as Kuscia writes them: a Cluster port, which is reached through Kuscia's gateway, has no number there.
	Endpoint string `json:"endpoint"`
	// Port is the number on which the pods listen.
	Port int32 `json:"port"`
}

// Endpoints are where a party's ports are reached, in the order of the template: a Domain port at its Service and number, a Cluster port at its Service,
// a Local port nowhere. A party that cannot be rendered has none.
func Endpoints(v Version, party int) []Endpoint {
	d, err := v.deployed(party)
	if err != nil {
		return nil
	}
	return d.endpoints()
}

func (d deployed) endpoints() []Endpoint {
	var all []Endpoint
	for _, p := range d.served() {
		host := serviceName(d.party, d.name, p.Name) + "." + d.party.DomainID + ".svc"
		if p.Scope == kuscia.ScopeDomain {
			host = fmt.Sprintf("%s:%d", host, p.Port)
		}
		all = append(all, Endpoint{PortName: p.Name, Scope: string(p.Scope), Endpoint: host, Port: p.Port})
	}
	return all
}

// served are the ports that have a Service.
func (d deployed) served() []kuscia.ContainerPort {
	var ports []kuscia.ContainerPort
	for _, p := range d.ports {
		if p.Scope == kuscia.ScopeCluster || p.Scope == kuscia.ScopeDomain {
			ports = append(ports, p)
		}
	}
	return ports
}

// clusterDefine is CLUSTER_DEFINE: who the parties are and where they are reached. Keys and order are those of Kuscia's message.
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

// clusterParties are all parties in the order of the spec. One that cannot be put together has no services: Check tells of it.
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

type allocatedPorts struct {
	Ports []allocatedPort `json:"ports"`
}

type allocatedPort struct {
	Name     string `json:"name"`
	Port     int32  `json:"port"`
	Scope    string `json:"scope"`
	Protocol string `json:"protocol"`
}

// allocatedPorts is ALLOCATED_PORTS: the numbers of all ports of the pod, declared ones too.
func (d deployed) allocatedPorts() string {
	all := allocatedPorts{Ports: []allocatedPort{}}
	for _, p := range d.ports {
		all.Ports = append(all.Ports, allocatedPort{Name: p.Name, Port: p.Port, Scope: string(p.Scope), Protocol: string(p.Protocol)})
	}
	return compact(all)
}

// compact is the JSON of a message of strings and numbers: such a one always has one.
func compact(message any) string {
	raw, _ := json.Marshal(message)
	return string(raw)
}
