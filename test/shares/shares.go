// Package shares evaluates the routes of a namespace for tests: given the objects that a request passes, it says which revision serves which share of the
// requests, and which share reaches no endpoint.
package shares

import (
	"fmt"

	discoveryv1 "k8s.io/api/discovery/v1"

	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
)

// Objects are the objects of one namespace that requests pass on their way.
type Objects struct {
	Services       []traffic.Object
	EndpointSlices []traffic.Object
	Ingresses      []traffic.Object
	HTTPRoutes     []traffic.Object
	// Custom are the objects of customNetworkRefs; only an Istio VirtualService, as the built-in script writes it, can be evaluated.
	Custom []traffic.Object
	// Revisions is the revision of every pod, by the pod's name: the value of its revision label (rollout.RevisionLabel).
	Revisions map[string]string
}

// Probe is the request whose way is asked for. The zero value is the ordinary request: GET / without anything that a match could ask for.
type Probe struct {
	// Host is "" for the host of the first rule that routes to the Service.
	Host string
	// Path is "" for "/"; an Ingress or a route that has no rule for "/" is asked by the path of its first rule to the Service.
	Path    string
	Method  string
	Headers map[string]string
	Cookies map[string]string
	Query   map[string]string
}

func (p Probe) path() string {
	if p.Path == "" {
		return "/"
	}
	return p.Path
}

func (p Probe) method() string {
	if p.Method == "" {
		return "GET"
	}
	return p.Method
}

// Split is where the requests go, in shares of 1.
type Split struct {
	// ByRevision is the share of each revision that a ready endpoint serves; "" are endpoints that no pod of Objects.Revisions stands behind.
	ByRevision map[string]float64
	// Nowhere is the share that meets a Service without a ready endpoint.
	Nowhere float64
}

// destination is a Service and its part of the requests.
type destination struct {
	service string
	weight  float64
}

// Of says which share of the requests like the probe each revision gets, and which share reaches no endpoint, as the data plane of the routing's provider
// would split them: an Ingress with canary annotations of ingress-nginx (those of its relatives read the same), an HTTPRoute, an Istio VirtualService. A routing
// that names no provider is its Service alone. It fails when the routing's object is not there, or has no rule for the request.
func Of(objects Objects, routing strategy.Routing, request Probe) (Split, error) {
	to, err := destinations(objects, routing, request)
	if err != nil {
		return Split{}, err
	}
	return objects.spread(to), nil
}

func destinations(objects Objects, routing strategy.Routing, request Probe) ([]destination, error) {
	switch {
	case routing.Ingress != nil:
		return objects.throughIngress(routing, request)
	case routing.HTTPRoute != "":
		return objects.throughHTTPRoute(routing, request)
	case len(routing.Custom) > 0:
		return objects.throughVirtualService(routing, request)
	default:
		return []destination{{routing.Service, 1}}, nil
	}
}

// spread divides the requests among the ready endpoints of each Service, which all get the same.
func (o Objects) spread(to []destination) Split {
	out := Split{ByRevision: map[string]float64{}}
	total := 0.0
	for _, d := range to {
		total += d.weight
	}
	if total == 0 {
		out.Nowhere = 1
		return out
	}
	for _, d := range to {
		if d.weight == 0 {
			continue
		}
		share := d.weight / total
		ready := o.endpoints(d.service)
		if len(ready) == 0 {
			out.Nowhere += share
			continue
		}
		for _, pod := range ready {
			out.ByRevision[o.Revisions[pod]] += share / float64(len(ready))
		}
	}
	return out
}

// endpoints are the ready endpoints of a Service, each once, by the name of its pod, or by its address when no pod is behind it. A Service that is not there has none.
func (o Objects) endpoints(service string) []string {
	if find(o.Services, service) == nil {
		return nil
	}
	seen := map[string]bool{}
	var out []string
	for _, slice := range o.EndpointSlices {
		if traffic.DigString(slice, "metadata", "labels", discoveryv1.LabelServiceName) != service {
			continue
		}
		for _, name := range readyEndpoints(slice) {
			if !seen[name] {
				seen[name] = true
				out = append(out, name)
			}
		}
	}
	return out
}

// readyEndpoints names the ready endpoints of an EndpointSlice by their pods, or by their first address when no pod is behind them. An endpoint that does not
// say whether it is ready is, by the rule of the EndpointSlice API.
func readyEndpoints(slice traffic.Object) []string {
	var out []string
	for _, e := range traffic.DigObjects(slice, "endpoints") {
		if ready, said := traffic.Dig(e, "conditions", "ready").(bool); said && !ready {
			continue
		}
		name := traffic.DigString(e, "targetRef", "name")
		if name == "" {
			if addresses, _ := traffic.Dig(e, "addresses").([]any); len(addresses) > 0 {
				name, _ = addresses[0].(string)
			}
		}
		if name != "" {
			out = append(out, name)
		}
	}
	return out
}

// find is the object of that name, nil when there is none.
func find(objects []traffic.Object, name string) traffic.Object {
	for _, o := range objects {
		if traffic.DigString(o, "metadata", "name") == name {
			return o
		}
	}
	return nil
}

func noRule(kind, name string, request Probe) error {
	return fmt.Errorf("%s %s has no rule for a request to %s%s", kind, name, request.Host, request.path())
}

// MissingError says that an object that routes is not there.
type MissingError struct{ Kind, Name string }

func (e MissingError) Error() string { return "there is no " + e.Kind + " " + e.Name }
