package harness

import (
	"context"
	"fmt"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/routes"
)

// Provider is the traffic provider of a workload.
type Provider string

// The providers that the tests cover. With NoProvider traffic is not routed: it follows the pods.
const (
	NoProvider Provider = "None"
	Nginx      Provider = "Nginx"
	Gateway    Provider = "Gateway"
	Istio      Provider = "Istio"
)

// Providers are all providers that route traffic.
var Providers = []Provider{Nginx, Gateway, Istio}

// The custom kinds that route traffic.
var (
	HTTPRoutes = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1",
		Resource: "httproutes"}
	VirtualServices = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1",
		Resource: "virtualservices"}
)

// RoutingOf returns the routing of a strategy for the objects that Route creates.
func (e *Engine) RoutingOf(provider Provider, name string) []strategy.Routing {
	r := strategy.Routing{Service: name, GraceSeconds: 1}
	switch provider {
	case Nginx:
		r.Ingress = &strategy.IngressRef{Class: "nginx", Name: name}
	case Gateway:
		r.HTTPRoute = name
	case Istio:
		r.Custom = []strategy.ObjectRef{{APIVersion: VirtualServices.GroupVersion().String(), Kind: "VirtualService",
			Name: name}}
	}
	return []strategy.Routing{r}
}

// Route creates a Service for a workload and the route that the provider needs. It returns when the Service has its
// endpoints.
func (e *Engine) Route(provider Provider, name string) {
	e.t.Helper()
	if provider == NoProvider {
		return
	}
	e.Service(name)
	switch provider {
	case Nginx:
		e.Ingress(name)
	case Gateway:
		routes.Install(e.t, e.REST)
		e.HTTPRoute(name)
	case Istio:
		routes.Install(e.t, e.REST)
		e.VirtualService(name)
	}
}

// Service creates a Service for the pods of the workload of the same name, and waits for its endpoints.
func (e *Engine) Service(name string) {
	e.t.Helper()
	_, err := e.Kube.CoreV1().Services(e.Apps).Create(context.Background(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": "shop"}},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}, metav1.CreateOptions{})
	require.NoError(e.t, err)
	e.WaitEndpoints(name, e.ReadyPods(name))
}

// WaitEndpoints returns when a Service has that many ready endpoints.
func (e *Engine) WaitEndpoints(service string, want int) {
	e.t.Helper()
	require.Eventually(e.t, func() bool {
		slices, err := e.Kube.DiscoveryV1().EndpointSlices(e.Apps).List(context.Background(),
			metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
		if err != nil {
			return false
		}
		ready := 0
		for _, slice := range slices.Items {
			for _, endpoint := range slice.Endpoints {
				if endpoint.Conditions.Ready != nil && *endpoint.Conditions.Ready {
					ready++
				}
			}
		}
		return ready == want
	}, Patience, Tick, "Service %s never had %d endpoints", service, want)
}

// Ingress creates an Ingress of the class nginx, with a host, TLS and a second path that belongs to the user.
func (e *Engine) Ingress(name string) {
	e.t.Helper()
	class, prefix := "nginx", networkingv1.PathTypePrefix
	backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: name,
		Port: networkingv1.ServiceBackendPort{Number: 80}}}
	other := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "docs",
		Port: networkingv1.ServiceBackendPort{Number: 80}}}
	_, err := e.Kube.NetworkingV1().Ingresses(e.Apps).Create(context.Background(), &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: name,
			Annotations: map[string]string{"nginx.ingress.kubernetes.io/proxy-body-size": "8m"}},
		Spec: networkingv1.IngressSpec{IngressClassName: &class,
			TLS: []networkingv1.IngressTLS{{Hosts: []string{"shop.test"}, SecretName: "shop"}},
			Rules: []networkingv1.IngressRule{{Host: "shop.test",
				IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{
					{Path: "/", PathType: &prefix, Backend: backend},
					{Path: "/docs", PathType: &prefix, Backend: other}}}}}}},
	}, metav1.CreateOptions{})
	require.NoError(e.t, err)
}

// HTTPRoute creates an HTTPRoute with a rule for the Service and a redirect rule that belongs to the user.
func (e *Engine) HTTPRoute(name string) {
	e.t.Helper()
	e.create(HTTPRoutes,
		fmt.Sprintf(
			`{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": %[1]q, "annotations": {"team": "shop"}}, "spec": {
  "parentRefs": [{"name": "edge"}], "hostnames": ["shop.test"],
  "rules": [
    {"matches": [{"path": {"type": "Exact", "value": "/old"}}], "filters": [{"type": "RequestRedirect", "requestRedirect": {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/"}}}]},
    {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": [{"name": %[1]q, "port": 80, "weight": 7}]}]}}`, name))
}

// VirtualService creates a VirtualService with a route to the Service and another route that belongs to the user.
func (e *Engine) VirtualService(name string) {
	e.t.Helper()
	e.create(VirtualServices,
		fmt.Sprintf(
			`{"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": %[1]q, "labels": {"team": "shop"}}, "spec": {
  "hosts": ["shop.test"], "gateways": ["edge"],
  "http": [
    {"match": [{"uri": {"prefix": "/docs"}}], "route": [{"destination": {"host": "docs"}}]},
    {"route": [{"destination": {"host": %[1]q}}], "timeout": "5s"}]}}`, name))
}

func (e *Engine) create(gvr schema.GroupVersionResource, document string) {
	e.t.Helper()
	var object unstructured.Unstructured
	require.NoError(e.t, object.UnmarshalJSON([]byte(document)))
	_, err := e.Dynamic(e.t).Resource(gvr).Namespace(e.Apps).Create(context.Background(), &object,
		metav1.CreateOptions{})
	require.NoError(e.t, err)
}
