package observer

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/test/shares"
)

// split is where requests of one kind go, in percent.
type split struct {
	// ByService is what the routes send to each Service, as far as it has an endpoint.
	ByService map[string]float64
	// New is what arrives at pods of another version than the stable one.
	New float64
	// Nowhere is what meets no endpoint.
	Nowhere float64
}

// scene evaluates routes, and remembers what it has converted: at each moment of a replay but one object is another.
type scene struct {
	converted map[runtime.Object]traffic.Object
	// revisions are those of all pods that there ever were: one that is gone stands in the endpoints for a moment longer.
	revisions map[string]string
}

func newScene() *scene {
	return &scene{converted: map[runtime.Object]traffic.Object{}, revisions: map[string]string{}}
}

// split asks the evaluator twice: with the pods behind the Services, for who is served, and with the Services themselves as endpoints, for what the routes say.
func (s *scene) split(w world, stable string, routing strategy.Routing, like strategy.Match) (split, error) {
	objects := s.objects(w)
	served, err := shares.Of(objects, routing, probe(like))
	if err != nil {
		return split{}, err
	}
	out := split{ByService: map[string]float64{}, Nowhere: 100 * served.Nowhere}
	for revision, share := range served.ByRevision {
		if revision != stable {
			out.New += 100 * share
		}
	}
	objects.EndpointSlices, objects.Revisions = nil, map[string]string{}
	for _, obj := range w {
		if svc, ok := obj.(*corev1.Service); ok && w.hasReadyEndpoint(svc.Name) {
			objects.EndpointSlices = append(objects.EndpointSlices, standIn(svc.Name))
			objects.Revisions[svc.Name] = svc.Name
		}
	}
	routed, err := shares.Of(objects, routing, probe(like))
	for service, share := range routed.ByRevision {
		out.ByService[service] = 100 * share
	}
	return out, err
}

// standIn is an EndpointSlice whose one endpoint is the Service itself.
func standIn(service string) traffic.Object {
	return traffic.Object{"metadata": traffic.Object{"labels": traffic.Object{discoveryv1.LabelServiceName: service}},
		"endpoints": []any{traffic.Object{"targetRef": traffic.Object{"name": service}}}}
}

func (s *scene) objects(w world) shares.Objects {
	out := shares.Objects{Revisions: s.revisions}
	for _, obj := range w {
		switch o := obj.(type) {
		case *corev1.Pod:
			if owner, ok := ownerOf(o); ok {
				s.revisions[o.Name] = revisionOf(o, owner)
			}
		case *corev1.Service:
			out.Services = append(out.Services, s.convert(o))
		case *discoveryv1.EndpointSlice:
			out.EndpointSlices = append(out.EndpointSlices, s.convert(o))
		case *networkingv1.Ingress:
			out.Ingresses = append(out.Ingresses, s.convert(o))
		case *unstructured.Unstructured:
			switch o.GetKind() {
			case "HTTPRoute":
				out.HTTPRoutes = append(out.HTTPRoutes, o.Object)
			case "VirtualService":
				out.Custom = append(out.Custom, o.Object)
			}
		}
	}
	return out
}

func (s *scene) convert(obj runtime.Object) traffic.Object {
	if known, ok := s.converted[obj]; ok {
		return known
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		object = traffic.Object{} // what cannot be read is not there: the evaluator then says so
	}
	s.converted[obj] = object
	return object
}

// probe is a request that a match is met by.
func probe(like strategy.Match) shares.Probe {
	p := shares.Probe{Headers: map[string]string{}, Query: map[string]string{}}
	if like.Path != nil {
		p.Path = example(like.Path.Type, like.Path.Value)
	}
	for _, h := range like.Headers {
		p.Headers[h.Name] = example(h.Type, h.Value)
	}
	for _, q := range like.QueryParams {
		p.Query[q.Name] = example(q.Type, q.Value)
	}
	return p
}

// example is a value that a pattern matches, for the plain patterns that the tests use.
func example(kind strategy.MatchType, value string) string {
	if kind != strategy.MatchRegularExpression {
		return value
	}
	return strings.NewReplacer("^", "", "$", "", ".*", "x", ".+", "x").Replace(value)
}
