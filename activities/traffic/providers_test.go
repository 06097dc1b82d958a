package traffic_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

const ingressYAML = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: order, labels: {team: shop}, annotations: {nginx.ingress.kubernetes.io/rewrite-target: /}}
spec:
  ingressClassName: nginx
  tls: [{hosts: [shop.example], secretName: shop}]
  rules:
  - host: shop.example
    http:
      paths:
      - {path: /order, pathType: Prefix, backend: {service: {name: order, port: {number: 80}}}}
      - {path: /cart, pathType: Prefix, backend: {service: {name: cart, port: {number: 80}}}}
`

const routeYAML = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: order, labels: {team: shop}, annotations: {note: mine}}
spec:
  parentRefs: [{name: gate}]
  rules:
  - matches: [{path: {type: PathPrefix, value: /order}}]
    backendRefs: [{name: order, port: 80, weight: 7}]
  - matches: [{path: {type: PathPrefix, value: /old}}]
    filters: [{type: RequestRedirect, requestRedirect: {path: {type: ReplaceFullPath, replaceFullPath: /order}}}]
  - matches: [{path: {type: PathPrefix, value: /cart}}]
    backendRefs: [{name: cart, port: 80}]
`

const virtualServiceYAML = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: order, annotations: {note: mine}}
spec:
  hosts: [shop.example]
  http:
  - match: [{uri: {prefix: /cart}}]
    route: [{destination: {host: cart}}]
  - route: [{destination: {host: order.SPACE.svc.cluster.local, port: {number: 80}}}]
`

// way is one provider with the objects and the routing that it needs.
type way struct {
	yaml    string
	routing strategy.Routing
	kind    string
}

var ways = map[string]way{
	"ingress": {ingressYAML, strategy.Routing{Service: "order", GraceSeconds: 3,
		Ingress: &strategy.IngressRef{Class: "nginx", Name: "order"}}, "Ingress"},
	"httproute": {routeYAML, strategy.Routing{Service: "order", GraceSeconds: 5, HTTPRoute: "order"}, "HTTPRoute"},
	"custom": {virtualServiceYAML, strategy.Routing{Service: "order", GraceSeconds: 1, Custom: []strategy.ObjectRef{
		{APIVersion: "networking.istio.io/v1", Kind: "VirtualService", Name: "order"}}}, "VirtualService"},
}

func (b *bench) set(w way) *unstructured.Unstructured {
	b.t.Helper()
	b.shop()
	b.apply(replaceSpace(w.yaml, b.namespace))
	return b.object(w.kind, "order")
}

// TestProvider_FullRelease takes each provider through a complete release. Each change is made twice; the second time
// nothing is written. At the end the user's objects are restored and the release's own objects are deleted.
func TestProvider_FullRelease(t *testing.T) {
	t.Parallel()
	for name, w := range ways {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			before := own(b.set(w))
			service := own(b.object("Service", "order"))

			result := b.must(b.request(rollout.RoutePin, w.routing))
			require.True(t, result.Modified)
			require.Equal(t, w.routing.GraceSeconds, result.GraceSeconds)
			require.Contains(t, result.Message, "selects the stable version only")
			require.Equal(t, map[string]any{"app": "order", "pod-template-hash": stable},
				b.object("Service", "order").Object["spec"].(map[string]any)["selector"])

			for _, asks := range []strategy.Traffic{weight(20), byHeader("x-user", "tester"), weight(50), weight(0)} {
				req := b.request(rollout.RouteEnsure, w.routing)
				req.Traffic = asks
				require.True(t, b.must(req).Modified, "%s", toJSON(t, asks))
				b.requireSplit(w, asks)
			}
			b.must(b.request(rollout.RouteToNew, w.routing))
			b.requireSplit(w, weight(100))

			made := b.object("Service", "order-canary")
			require.Equal(t, "order", made.GetLabels()[strategy.LabelCanaryOf])
			require.Equal(t, "shop", made.GetLabels()["team"])
			require.Equal(t, ours, made.GetAnnotations()[rollout.AnnotationHeldBy])
			require.Equal(t, "Service", made.GetOwnerReferences()[0].Kind)

			b.must(b.request(rollout.RouteUnpin, w.routing))
			b.must(b.request(rollout.RouteToStable, w.routing))
			b.must(b.request(rollout.RouteRemoveCanary, w.routing))
			require.Equal(t, before, own(b.object(w.kind, "order")), "the route is restored")
			require.Equal(t, service, own(b.object("Service", "order")), "the Service is restored")
			require.Nil(t, b.object("Service", "order-canary"))
			require.Nil(t, b.object("Ingress", "order-canary"))
		})
	}
}

// TestTakeOver: a release takes over the claim of a dead one, and restores the originals from before the first.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	for name, w := range ways {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			before := own(b.set(w))
			service := own(b.object("Service", "order"))
			b.must(b.request(rollout.RoutePin, w.routing))
			req := b.request(rollout.RouteEnsure, w.routing)
			req.Traffic = weight(20)
			b.must(req)

			next := workload.Holder{WorkflowID: "rollout/default/shop/order", RunID: "run-2"}.String()
			all := []rollout.RouteAction{rollout.RoutePin, rollout.RouteEnsure, rollout.RouteUnpin,
				rollout.RouteToStable, rollout.RouteRemoveCanary}
			for _, action := range all {
				req := b.request(action, w.routing)
				req.Claim, req.Traffic = next, weight(20)
				_, details := b.fails(req, failure.Claimed)
				require.Equal(t, ours, details.Holder, "%s", action)
			}
			for _, action := range all {
				req := b.request(action, w.routing)
				req.Claim, req.TakeOver, req.Ended, req.Traffic = next, ours, true, weight(20)
				b.must(req)
			}
			require.Equal(t, before, own(b.object(w.kind, "order")))
			require.Equal(t, service, own(b.object("Service", "order")))
		})
	}
}

// A dump brings back what an ended release had on the objects: the next release takes that claim over, but what it
// finds is the original, and not what the copied annotation names. Marks that the engine itself has left are no copy:
// their original is restored (TestTakeOver).
func TestTakeOver_RestoresNothingFromCopyOfEndedRelease(t *testing.T) {
	t.Parallel()
	for name, w := range ways {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.set(w)
			b.must(b.request(rollout.RoutePin, w.routing))
			for _, mark := range []string{"null", `"` + ours + `"`} { // by another client's hand
				b.merge("Service", "order", `{metadata: {annotations: {"`+rollout.AnnotationHeldBy+`": `+mark+`}}}`)
			}
			dumped := b.object("Service", "order").Object["spec"]

			next := workload.Holder{WorkflowID: "rollout/default/shop/order", RunID: "run-2"}.String()
			for _, action := range []rollout.RouteAction{rollout.RoutePin, rollout.RouteUnpin} {
				req := b.request(action, w.routing)
				req.Claim, req.TakeOver, req.Ended = next, ours, true
				b.must(req)
			}
			service := b.object("Service", "order")
			require.Equal(t, dumped, service.Object["spec"], "the selector that came with the dump is its owner's")
			require.NotContains(t, service.GetAnnotations(), rollout.AnnotationHeldBy)
			require.NotContains(t, service.GetAnnotations(), rollout.AnnotationRestore)
		})
	}
}
