package traffic_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/release/rollout/traffic/sandbox"
)

func evaluate(t testing.TB, script traffic.Script, input traffic.Object) sandbox.Response {
	t.Helper()
	source := script.BuiltIn()
	require.NotEmpty(t, source, script.Key)
	raw, err := json.Marshal(input)
	require.NoError(t, err)
	return sandbox.Prepare(context.Background(), sandbox.Request{Script: script.File + ".lua", Source: source,
		Input: raw}).Evaluate()
}

const usersIngress = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: order
  namespace: shop
  uid: u1
  annotations: {mine: "yes", kubectl.kubernetes.io/last-applied-configuration: "{}", nginx.ingress.kubernetes.io/canary-weight: "3"}
spec:
  ingressClassName: nginx
  defaultBackend: {service: {name: order, port: {number: 80}}}
  rules:
  - host: a.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: order, port: {number: 80}}}}, {path: /b, pathType: Prefix, backend: {resource: {kind: Bucket, name: b}}}]}
  - host: no-http.example
  - host: cart.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: cart, port: {number: 80}}}}]}
`

func TestIngressScripts(t *testing.T) {
	t.Parallel()
	cookie := headerIs("canary-by-cookie", "beta")
	pattern := strategy.Match{Headers: []strategy.ValueMatch{{Type: strategy.MatchRegularExpression, Name: "u",
		Value: "^t"}}}
	query := strategy.Match{QueryParams: []strategy.ValueMatch{{Type: strategy.MatchExact, Name: "beta", Value: "1"}}}
	tag := &strategy.HeaderModifier{Set: []strategy.Header{{Name: "a", Value: "1"}, {Name: "b", Value: "2"}},
		Remove: []string{"c", "d"}}
	same := traffic.ServicePair{Stable: "order", Canary: "order"}
	cases := map[string]struct {
		reason, class  string
		pair           traffic.ServicePair
		asks           strategy.Traffic
		want           map[string]string
		refused, field string
	}{
		"nginx weight": {reason: "by weight, over any earlier annotations", class: "nginx", pair: pair,
			asks: weight(20), want: map[string]string{"nginx.ingress.kubernetes.io/canary": "true",
				"nginx.ingress.kubernetes.io/canary-weight": "20"}},
		"nginx header": {reason: "by value, and the old weight is removed", class: "nginx", pair: pair,
			asks: matches(headerIs("u", "t")), want: map[string]string{"nginx.ingress.kubernetes.io/canary": "true",
				"nginx.ingress.kubernetes.io/canary-by-header":       "u",
				"nginx.ingress.kubernetes.io/canary-by-header-value": "t"}},
		"higress both": {reason: "one header or one cookie", class: "higress", pair: pair,
			asks: matches(pattern, cookie), want: map[string]string{"nginx.ingress.kubernetes.io/canary": "true",
				"nginx.ingress.kubernetes.io/canary-by-header":         "u",
				"nginx.ingress.kubernetes.io/canary-by-header-pattern": "^t",
				"nginx.ingress.kubernetes.io/canary-by-cookie":         "beta"}},
		"nginx twice": {reason: "one header only", class: "nginx", pair: pair,
			asks: matches(headerIs("u", "t"), headerIs("v", "t")), refused: "one header only", field: "matches[1]"},
		"nginx query": {reason: "no annotation for it", class: "nginx", pair: pair, asks: matches(query),
			refused: "query parameter", field: "matches[0].queryParams"},
		"nginx modifier": {reason: "no annotation for it", class: "nginx", pair: pair,
			asks:    strategy.Traffic{Weight: weight(1).Weight, RequestHeaderModifier: tag},
			refused: "cannot change the headers", field: "requestHeaderModifier"},
		"nginx alone": {reason: "it distinguishes versions by Service", class: "nginx", pair: same, asks: weight(1),
			refused: "no canary Service"},
		"mse query": {reason: "its own prefix, since only mse has the annotation", class: "mse", pair: pair,
			asks: matches(query), want: map[string]string{"nginx.ingress.kubernetes.io/canary": "true",
				"mse.ingress.kubernetes.io/canary-by-query":       "beta",
				"mse.ingress.kubernetes.io/canary-by-query-value": "1"}},
		"mse modifier": {reason: "one header per line", class: "mse", pair: same,
			asks: strategy.Traffic{Matches: []strategy.Match{headerIs("u", "t")}, RequestHeaderModifier: tag},
			want: map[string]string{"nginx.ingress.kubernetes.io/canary": "true",
				"nginx.ingress.kubernetes.io/canary-by-header":            "u",
				"nginx.ingress.kubernetes.io/canary-by-header-value":      "t",
				"mse.ingress.kubernetes.io/request-header-control-update": "a 1\nb 2",
				"mse.ingress.kubernetes.io/request-header-control-remove": "c,d"}},
		"alb header": {reason: "evaluated before the stable rules", class: "aliyun-alb", pair: pair,
			asks: matches(headerIs("u", "t")), want: map[string]string{"alb.ingress.kubernetes.io/canary": "true",
				"alb.ingress.kubernetes.io/order": "1", "alb.ingress.kubernetes.io/canary-by-header": "u",
				"alb.ingress.kubernetes.io/canary-by-header-value": "t"}},
		"alb pattern": {reason: "exact values only", class: "aliyun-alb", pair: pair, asks: matches(pattern),
			refused: "exact values", field: "matches[0].headers[0].type"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := evaluate(t, traffic.IngressScript(tc.class),
				traffic.IngressInput(object(t, usersIngress), tc.class, tc.pair, tc.asks))
			require.Nil(t, response.Trouble, tc.reason)
			if tc.refused != "" {
				require.NotNil(t, response.Refusal, tc.reason)
				require.Contains(t, response.Refusal.Reason, tc.refused)
				require.Equal(t, tc.field, response.Refusal.Field)
				return
			}
			got, err := traffic.IngressOutput(traffic.FoundScript{Name: "s"}, object(t, usersIngress),
				response.Output)
			require.NoError(t, err)
			require.Equal(t, "yes", got["mine"], "the user's annotations are kept")
			delete(got, "mine")
			if tc.class == "aliyun-alb" {
				// an annotation of another class belongs to the user
				delete(got, "nginx.ingress.kubernetes.io/canary-weight")
			}
			require.Equal(t, tc.want, got, tc.reason)
		})
	}
}

// TestCanaryIngress copies only what leads to the Service, and accepts rules without http and backends that are not
// Services.
func TestCanaryIngress(t *testing.T) {
	t.Parallel()
	got, err := traffic.CanaryIngress(object(t, usersIngress), pair, map[string]string{"x": "y"},
		traffic.Version{Workload: "order", Claim: "me"})
	require.NoError(t, err)
	require.Equal(t, object(t, `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: order-canary
  namespace: shop
  labels: {slipway.io/canary-of: order, slipway.io/claimed: "true"}
  annotations: {x: "y", slipway.io/held-by: me}
  ownerReferences: [{apiVersion: networking.k8s.io/v1, kind: Ingress, name: order, uid: u1}]
spec:
  ingressClassName: nginx
  defaultBackend: {service: {name: order-canary, port: {number: 80}}}
  rules:
  - host: a.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: order-canary, port: {number: 80}}}}]}
`), got)
}

// A preflight derives the canary without annotations of its own.
func TestCanaryIngress_WithoutAnnotations(t *testing.T) {
	t.Parallel()
	got, err := traffic.CanaryIngress(object(t, usersIngress), pair, nil, traffic.Version{Workload: "order", Claim: "me"})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"slipway.io/held-by": "me"}, jsonpatch.DigObject(got, "metadata", "annotations"))
}

// A second canary is one of the same class, host and path, with any backend.
func TestSecondCanary(t *testing.T) {
	t.Parallel()
	canary := func(class, host, path string) traffic.Object {
		return object(t, `
kind: Ingress
metadata: {annotations: {nginx.ingress.kubernetes.io/canary: "true"}}
spec:
  ingressClassName: `+class+`
  rules: [{host: `+host+`, http: {paths: [{path: `+path+`, backend: {service: {name: theirs}}}]}}]
`)
	}
	stable := object(t, usersIngress)
	require.Equal(t, "a.example/", traffic.SecondCanary(stable, canary("nginx", "a.example", "/"), pair),
		"the same host and path")
	for reason, other := range map[string]traffic.Object{
		"another path":          canary("nginx", "a.example", "/theirs"),
		"another host":          canary("nginx", "nobody.example", "/"),
		"another controller's":  canary("other", "a.example", "/"),
		"an Ingress of its own": object(t, strings.Replace(usersIngress, "name: order", "name: other", 1)),
	} {
		require.Empty(t, traffic.SecondCanary(stable, other, pair), reason)
	}
	byAnnotation := canary("nginx", "a.example", "/")
	delete(byAnnotation["spec"].(map[string]any), "ingressClassName")
	byAnnotation["metadata"].(map[string]any)["annotations"].(map[string]any)["kubernetes.io/ingress.class"] = "nginx"
	require.NotEmpty(t, traffic.SecondCanary(stable, byAnnotation, pair),
		"the class may be in the annotation of before")
}

// TestCanaryService leaves out what is assigned to one Service only.
func TestCanaryService(t *testing.T) {
	t.Parallel()
	service := object(t, `
apiVersion: v1
kind: Service
metadata: {name: order, namespace: shop, uid: u1, labels: {team: shop}}
spec:
  type: LoadBalancer
  clusterIP: 10.0.0.1
  clusterIPs: [10.0.0.1]
  ipFamilies: [IPv4]
  ipFamilyPolicy: SingleStack
  externalIPs: [1.2.3.4]
  loadBalancerIP: 1.2.3.4
  healthCheckNodePort: 30001
  externalTrafficPolicy: Local
  sessionAffinity: ClientIP
  selector: {app: order}
  ports: [{port: 80, nodePort: 30000}]
`)
	v := traffic.Version{Workload: "order", Label: "pod-template-hash", Hash: "84f5b",
		Labels: map[string]string{"gray": "true"}, Claim: "me"}
	require.Equal(t, object(t, `
apiVersion: v1
kind: Service
metadata:
  name: order-canary
  namespace: shop
  labels: {team: shop, slipway.io/canary-of: order, slipway.io/claimed: "true"}
  annotations: {slipway.io/held-by: me}
  ownerReferences: [{apiVersion: v1, kind: Service, name: order, uid: u1}]
spec:
  type: ClusterIP
  sessionAffinity: ClientIP
  selector: {app: order, gray: "true", pod-template-hash: 84f5b}
  ports: [{port: 80}]
`), traffic.CanaryService(service, "order-canary", v))
}

var virtualService = traffic.CustomScript(strategy.ObjectRef{APIVersion: "networking.istio.io/v1",
	Kind: "VirtualService", Name: "order"})

// TestVirtualServiceScript covers how a VirtualService is changed.
func TestVirtualServiceScript(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, spec, want, refused string
		pair                        traffic.ServicePair
		asks                        strategy.Traffic
	}{
		"weight": {reason: "each route to the Service is divided, in its own part", pair: pair, asks: weight(20),
			spec: `{http: [{match: [{uri: {prefix: /a}}], route: [{destination: {host: order}, weight: 75}, {destination: {host: legacy}, weight: 25}]}, {route: [{destination: {host: order.shop.svc}}]}, {route: [{destination: {host: order.other.svc}}]}]}`,
			want: `{http: [{match: [{uri: {prefix: /a}}], route: [{destination: {host: order}, weight: 12}, {destination: {host: order-canary}, weight: 3}, {destination: {host: legacy}, weight: 5}]},
				{route: [{destination: {host: order.shop.svc}, weight: 80}, {destination: {host: order-canary.shop.svc}, weight: 20}]}, {route: [{destination: {host: order.other.svc}}]}]}`},
		"matches": {reason: "a rule of its own, before the one it narrows, in the order asked", pair: pair,
			asks: strategy.Traffic{Matches: []strategy.Match{headerIs("U", "1"),
				pathIs(strategy.MatchPathPrefix, "/a/b")},
				RequestHeaderModifier: &strategy.HeaderModifier{Add: []strategy.Header{{Name: "t", Value: "g"}}}},
			spec: `{http: [{name: n, match: [{uri: {prefix: /a}}], timeout: 3s, route: [{destination: {host: order, subset: v1}, weight: 100}]}]}`,
			want: `{http: [{match: [{uri: {prefix: /a}, headers: {u: {exact: "1"}}}, {uri: {prefix: /a/b}}], timeout: 3s, headers: {request: {add: {t: g}}}, route: [{destination: {host: order-canary}}]},
				{name: n, match: [{uri: {prefix: /a}}], timeout: 3s, route: [{destination: {host: order, subset: v1}, weight: 100}]}]}`},
		"subset": {reason: "without a canary Service the version is a subset",
			pair: traffic.ServicePair{Stable: "order", Canary: "order"}, asks: weight(50),
			spec: `{http: [{route: [{destination: {host: order}}]}]}`,
			want: `{http: [{route: [{destination: {host: order}, weight: 50}, {destination: {host: order, subset: canary}, weight: 50}]}]}`},
		"nowhere": {reason: "it leads elsewhere", pair: pair, asks: weight(50),
			spec: `{http: [{route: [{destination: {host: cart}}]}]}`, refused: "no route to Service order"},
		"empty": {reason: "an empty list stays one", pair: pair, asks: weight(100),
			spec: `{gateways: [], http: [{route: [{destination: {host: order}}]}]}`,
			want: `{gateways: [], http: [{route: [{destination: {host: order}, weight: 0}, {destination: {host: order-canary}, weight: 100}]}]}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			original := object(t, "metadata: {name: order, namespace: shop, annotations: {mine: 'yes'}}\nspec: "+
				tc.spec)
			response := evaluate(t, virtualService, traffic.CustomInput(original, tc.pair, tc.asks))
			require.Nil(t, response.Trouble, tc.reason)
			if tc.refused != "" {
				require.Contains(t, response.Refusal.Reason, tc.refused)
				return
			}
			require.Nil(t, response.Refusal, tc.reason)
			got, paths, err := traffic.Custom(traffic.FoundScript{Name: "s"}, response.Output)(original)
			require.NoError(t, err)
			require.Equal(t, []string{"/spec"}, paths, "only the spec is borrowed")
			require.Equal(t, object(t, tc.want), got["spec"], tc.reason)
		})
	}
}

// TestDestinationRuleScript covers the added subset.
func TestDestinationRuleScript(t *testing.T) {
	t.Parallel()
	script := traffic.CustomScript(strategy.ObjectRef{APIVersion: "networking.istio.io/v1beta1",
		Kind: "DestinationRule", Name: "order"})
	original := object(t, "metadata: {name: order, namespace: shop}\nspec: {host: order, subsets: [{name: v1}]}")
	response := evaluate(t, script, traffic.CustomInput(original, pair, weight(1)))
	got, _, err := traffic.Custom(traffic.FoundScript{Name: "s"}, response.Output)(original)
	require.NoError(t, err)
	require.Equal(t,
		object(t, `{host: order, subsets: [{name: v1}, {name: canary, labels: {istio.service.tag: gray}}]}`),
		got["spec"])
}
