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

// split is the distribution of requests of one kind, in percent.
type split struct {
	// ByService is the share that the routes send to each Service that has an endpoint.
	ByService map[string]float64
	// New is the share that reaches pods of another version than the stable one.
	New float64
	// Unreachable is the share that reaches no endpoint.
	Unreachable float64
}

// trafficEvaluator evaluates routes. It caches converted objects, since only one object changes from moment to moment
// of a replay.
type trafficEvaluator struct {
	converted map[runtime.Object]traffic.Object
	// revisions are the revisions of all pods ever seen: endpoints may name a deleted pod for a moment.
	revisions map[string]string
}

func newTrafficEvaluator() *trafficEvaluator {
	return &trafficEvaluator{converted: map[runtime.Object]traffic.Object{}, revisions: map[string]string{}}
}

// split calls the evaluator twice: with the pods behind the Services, to find who is served, and with the Services
// themselves as endpoints, to find what the routes send.
func (s *trafficEvaluator) split(w world, stable string, routing strategy.Routing, like strategy.Match) (split, error) {
	objects := s.objects(w)
	served, err := shares.Of(objects, routing, probe(like))
	if err != nil {
		return split{}, err
	}
	out := split{ByService: map[string]float64{}, Unreachable: 100 * served.Unreachable}
	for revision, share := range served.ByRevision {
		if revision != stable {
			out.New += 100 * share
		}
	}
	objects.EndpointSlices, objects.Revisions = nil, map[string]string{}
	for _, obj := range w {
		if svc, ok := obj.(*corev1.Service); ok && w.hasReadyEndpoint(svc.Name) {
			objects.EndpointSlices = append(objects.EndpointSlices, serviceAsEndpoint(svc.Name))
			objects.Revisions[svc.Name] = svc.Name
		}
	}
	routed, err := shares.Of(objects, routing, probe(like))
	for service, share := range routed.ByRevision {
		out.ByService[service] = 100 * share
	}
	return out, err
}

// serviceAsEndpoint returns an EndpointSlice whose only endpoint is the Service itself.
func serviceAsEndpoint(service string) traffic.Object {
	return traffic.Object{"metadata": traffic.Object{"labels": traffic.Object{discoveryv1.LabelServiceName: service}},
		"endpoints": []any{traffic.Object{"targetRef": traffic.Object{"name": service}}}}
}

func (s *trafficEvaluator) objects(w world) shares.Objects {
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

func (s *trafficEvaluator) convert(obj runtime.Object) traffic.Object {
	if known, ok := s.converted[obj]; ok {
		return known
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		object = traffic.Object{} // the evaluator then reports the object as missing
	}
	s.converted[obj] = object
	return object
}

// probe returns a request that satisfies a match.
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

// example returns a value that matches a pattern, for the simple patterns that the tests use.
func example(kind strategy.MatchType, value string) string {
	if kind != strategy.MatchRegularExpression {
		return value
	}
	return strings.NewReplacer("^", "", "$", "", ".*", "x", ".+", "x").Replace(value)
}
