// Package shares evaluates the routes of a namespace for tests: given the objects on a request's path, it computes
// which revision serves which share of the requests, and which share reaches no endpoint.
package shares

import (
	"fmt"

	discoveryv1 "k8s.io/api/discovery/v1"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
)

// Objects are the objects of one namespace on the path of a request.
type Objects struct {
	Services       []traffic.Object
	EndpointSlices []traffic.Object
	Ingresses      []traffic.Object
	HTTPRoutes     []traffic.Object
	// Custom are the objects of customNetworkRefs. Only an Istio VirtualService, in the form that the built-in script
	// writes, can be evaluated.
	Custom []traffic.Object
	// Revisions maps the name of every pod to its revision: the value of its revision label (rollout.RevisionLabel).
	Revisions map[string]string
}

// Probe is the evaluated request. The zero value is the ordinary request: GET / without anything that a match could
// require.
type Probe struct {
	// Host "" means the host of the first rule that routes to the Service.
	Host string
	// Path "" means "/"; if an Ingress or a route has no rule for "/", the path of its first rule for the Service.
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

// Split is the distribution of requests, as fractions of 1.
type Split struct {
	// ByRevision is the share that ready endpoints of each revision serve; "" is for endpoints without a pod in
	// Objects.Revisions.
	ByRevision map[string]float64
	// Unreachable is the share sent to a Service without a ready endpoint.
	Unreachable float64
}

// destination is a Service and its weight.
type destination struct {
	service string
	weight  float64
}

// Of computes which share of the probe's requests each revision gets, and which share reaches no endpoint. It splits
// them like the data plane of the routing's provider: an Ingress with canary annotations of ingress-nginx (other
// controllers with the same annotations are treated alike), an HTTPRoute, or an Istio VirtualService. A routing without
// a provider is its Service alone. Of fails if the routing's object does not exist or has no rule for the request.
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

// spread divides the requests equally among the ready endpoints of each Service.
func (o Objects) spread(to []destination) Split {
	out := Split{ByRevision: map[string]float64{}}
	total := 0.0
	for _, d := range to {
		total += d.weight
	}
	if total == 0 {
		out.Unreachable = 1
		return out
	}
	for _, d := range to {
		if d.weight == 0 {
			continue
		}
		share := d.weight / total
		ready := o.endpoints(d.service)
		if len(ready) == 0 {
			out.Unreachable += share
			continue
		}
		for _, pod := range ready {
			out.ByRevision[o.Revisions[pod]] += share / float64(len(ready))
		}
	}
	return out
}

// endpoints returns the distinct ready endpoints of a Service by the names of their pods, or by address without a pod.
// A missing Service has none.
func (o Objects) endpoints(service string) []string {
	if find(o.Services, service) == nil {
		return nil
	}
	seen := map[string]bool{}
	var out []string
	for _, slice := range o.EndpointSlices {
		if jsonpatch.DigString(slice, "metadata", "labels", discoveryv1.LabelServiceName) != service {
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

// readyEndpoints returns the ready endpoints of an EndpointSlice by the names of their pods, or by their first address
// without a pod. By the rule of the EndpointSlice API, an endpoint without the condition ready is ready.
func readyEndpoints(slice traffic.Object) []string {
	var out []string
	for _, e := range jsonpatch.DigObjects(slice, "endpoints") {
		if ready, set := jsonpatch.Dig(e, "conditions", "ready").(bool); set && !ready {
			continue
		}
		name := jsonpatch.DigString(e, "targetRef", "name")
		if name == "" {
			if addresses, _ := jsonpatch.Dig(e, "addresses").([]any); len(addresses) > 0 {
				name, _ = addresses[0].(string)
			}
		}
		if name != "" {
			out = append(out, name)
		}
	}
	return out
}

// find returns the object of that name, nil if there is none.
func find(objects []traffic.Object, name string) traffic.Object {
	for _, o := range objects {
		if jsonpatch.DigString(o, "metadata", "name") == name {
			return o
		}
	}
	return nil
}

func noRule(kind, name string, request Probe) error {
	return fmt.Errorf("%s %s has no rule for a request to %s%s", kind, name, request.Host, request.path())
}

// MissingError reports that an object that routes does not exist.
type MissingError struct{ Kind, Name string }

func (e MissingError) Error() string { return "there is no " + e.Kind + " " + e.Name }
