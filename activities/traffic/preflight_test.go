package traffic_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/activities/traffic"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	routing "slipway.io/slipway/release/rollout/traffic"
)

const deploymentYAML = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: order}
spec:
  replicas: 0
  selector: {matchLabels: {app: order}}
  template:
    metadata: {labels: {app: order}}
    spec: {containers: [{name: app, image: "order:1"}]}
`

const theirCanaryYAML = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: theirs, annotations: {nginx.ingress.kubernetes.io/canary: "true", nginx.ingress.kubernetes.io/canary-weight: "10"}}
spec:
  ingressClassName: nginx
  rules:
  - host: shop.example
    http: {paths: [{path: /order, pathType: Prefix, backend: {service: {name: theirs, port: {number: 80}}}}]}
`

func (b *bench) preflight(routing strategy.Routing, steps ...strategy.Traffic) ([]rollout.Refusal, string, string) {
	b.t.Helper()
	found := b.found(routing, steps...)
	return found.Refusals, found.Holder, found.HeldObject
}

func (b *bench) found(routing strategy.Routing, steps ...strategy.Traffic) rollout.PreflightResult {
	b.t.Helper()
	req := rollout.PreflightRequest{Subject: b.request("").Subject,
		Strategy: strategy.Strategy{Style: strategy.StylePartition, Routings: []strategy.Routing{routing}}}
	for _, s := range steps {
		req.Strategy.Steps = append(req.Strategy.Steps,
			strategy.Step{Traffic: s.Weight, Matches: s.Matches, RequestHeaderModifier: s.RequestHeaderModifier})
	}
	before := b.wire.count()
	found, err := b.acts.TrafficPreflight(b.t.Context(), req)
	require.NoError(b.t, err)
	require.Equal(b.t, before, b.wire.count(), "a preflight writes nothing")
	return found
}

func byPath(kind strategy.MatchType, value string) strategy.Traffic {
	return strategy.Traffic{Matches: []strategy.Match{{Path: &strategy.PathMatch{Type: kind, Value: value}}}}
}

// A Service that selects by a label which the new version's pods don't have is refused, unless the strategy makes no
// Services.
func TestPreflight_RefusesServiceThatNewPodsDoNotMatch(t *testing.T) {
	for _, c := range []struct {
		reason   string
		labels   map[string]string
		noCanary bool
		text     string
	}{
		{"the release changes the label", map[string]string{"app": "order", "version": "v2"}, false,
			"selects pods by version=v1, but the new version's pods have version=v2"},
		{"it removes the label", map[string]string{"app": "order"}, false,
			"the new version's pods don't have that label"},
		{"the label stays", map[string]string{"app": "order", "version": "v1", "more": "x"}, false, ""},
		{"the labels are not known yet", nil, false, ""},
		{"the routes choose the version themselves", map[string]string{"app": "order", "version": "v2"}, true, ""},
	} {
		t.Run(c.reason, func(t *testing.T) {
			b, w := newBench(t), ways["httproute"]
			b.apply(strings.Replace(serviceYAML, "app: order", "app: order, version: v1", 1))
			b.apply(replaceSpace(w.yaml, b.namespace))
			b.apply(strings.Replace(deploymentYAML, "metadata: {labels: {app: order}}",
				"metadata: {labels: {app: order, version: v1}}", 1))
			req := rollout.PreflightRequest{Subject: b.request("").Subject, PodLabels: c.labels,
				Strategy: strategy.Strategy{Style: strategy.StylePartition, DisableGenerateCanaryService: c.noCanary,
					Routings: []strategy.Routing{w.routing}}}
			found, err := b.acts.TrafficPreflight(t.Context(), req)
			require.NoError(t, err)
			if c.text == "" {
				require.Empty(t, found.Refusals, c.reason)
				return
			}
			require.Len(t, found.Refusals, 1, c.reason)
			require.Equal(t, "strategy.canary.trafficRoutings[0].service", found.Refusals[0].Field, c.reason)
			require.Contains(t, found.Refusals[0].Reason, c.text, c.reason)
		})
	}
}

// TestPreflight covers releases that are refused before they start, with the field and a remedy.
func TestPreflight(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		yaml   []string
		way    way
		change func(r *strategy.Routing)
		steps  []strategy.Traffic
		field  string
		text   string
	}{
		"good ingress": {reason: "all objects exist", way: ways["ingress"], yaml: []string{serviceYAML, ingressYAML},
			steps: []strategy.Traffic{weight(20), byHeader("a", "b")}},
		"good route": {reason: "all objects exist", way: ways["httproute"], yaml: []string{serviceYAML, routeYAML},
			steps: []strategy.Traffic{weight(20), byPath(strategy.MatchExact, "/order/1")}},
		"good custom": {reason: "all objects exist", way: ways["custom"],
			yaml: []string{serviceYAML, virtualServiceYAML}, steps: []strategy.Traffic{weight(20), byHeader("a", "b")}},
		"no service": {reason: "no Service selects the pods", way: ways["httproute"], yaml: []string{routeYAML},
			field: "strategy.canary.trafficRoutings[0].service", text: "order does not exist"},
		"other service": {reason: "the Service selects other pods", way: ways["httproute"],
			yaml:  []string{strings.Replace(serviceYAML, "app: order", "app: cart", 1), routeYAML},
			field: "strategy.canary.trafficRoutings[0].service", text: "which the pods of"},
		"no selector": {reason: "there is nothing to split", way: ways["httproute"],
			yaml:  []string{strings.Replace(serviceYAML, "  selector: {app: order}\n", "", 1), routeYAML},
			field: "strategy.canary.trafficRoutings[0].service", text: "has no selector"},
		"no ingress": {reason: "the Ingress does not exist", way: ways["ingress"], yaml: []string{serviceYAML},
			field: "strategy.canary.trafficRoutings[0]", text: "Ingress "},
		"no route": {reason: "the HTTPRoute does not exist", way: ways["httproute"], yaml: []string{serviceYAML},
			field: "strategy.canary.trafficRoutings[0]", text: "does not exist"},
		"no rule": {reason: "the Ingress routes to another Service", way: ways["ingress"],
			yaml:  []string{serviceYAML, strings.Replace(ingressYAML, "name: order, port", "name: other, port", 1)},
			field: "strategy.canary.trafficRoutings[0]", text: "no rule that leads to Service order"},
		"second canary": {reason: "a controller supports one canary per host and path", way: ways["ingress"],
			yaml:  []string{serviceYAML, ingressYAML, theirCanaryYAML},
			field: "strategy.canary.trafficRoutings[0]",
			text:  "/theirs is already a canary of shop.example/order that no release made"},
		"canary elsewhere": {reason: "a canary of another path does not conflict", way: ways["ingress"],
			yaml: []string{serviceYAML, ingressYAML,
				strings.Replace(theirCanaryYAML, "path: /order", "path: /cart", 1)}},
		"canary of another class": {reason: "a canary of another controller does not conflict", way: ways["ingress"],
			yaml: []string{serviceYAML, ingressYAML,
				strings.Replace(theirCanaryYAML, "ingressClassName: nginx", "ingressClassName: other", 1)}},
		"class": {reason: "there is no script for the class", way: ways["ingress"],
			yaml:   []string{serviceYAML, ingressYAML},
			change: func(r *strategy.Routing) { r.Ingress = &strategy.IngressRef{Class: "apache", Name: "order"} },
			field:  "strategy.canary.trafficRoutings[0]",
			text:   "there is no script lua.traffic.routing.ingress.apache"},
		"kind": {reason: "the cluster does not have the kind", way: ways["custom"], yaml: []string{serviceYAML},
			change: func(r *strategy.Routing) {
				r.Custom = []strategy.ObjectRef{{APIVersion: "unknown.example/v1", Kind: "Route", Name: "order"}}
			},
			field: "strategy.canary.trafficRoutings[0]", text: "the cluster has no unknown.example/v1"},
		"nginx path": {reason: "ingress-nginx has no such annotation", way: ways["ingress"],
			yaml:  []string{serviceYAML, ingressYAML},
			steps: []strategy.Traffic{weight(5), byPath(strategy.MatchExact, "/x")},
			field: "strategy.canary.steps[1].matches[0].path", text: "cannot match by path"},
		"nginx headers": {reason: "ingress-nginx compares one header only", way: ways["ingress"],
			yaml: []string{serviceYAML, ingressYAML},
			steps: []strategy.Traffic{
				{Matches: []strategy.Match{{Headers: []strategy.ValueMatch{{Type: strategy.MatchExact, Name: "a",
					Value: "1"}, {Type: strategy.MatchExact, Name: "b", Value: "1"}}}}}},
			field: "strategy.canary.steps[0].matches[0].headers", text: "exactly one header"},
		"route path": {reason: "no rule of the route matches the path", way: ways["httproute"],
			yaml:  []string{serviceYAML, routeYAML},
			steps: []strategy.Traffic{byPath(strategy.MatchExact, "/elsewhere")},
			field: "strategy.canary.steps[0].matches", text: "could meet"},
		"name taken": {reason: "the name of the canary Service is taken", way: ways["httproute"],
			yaml: []string{serviceYAML, strings.Replace(serviceYAML, "name: order", "name: order-canary", 1),
				routeYAML},
			field: "strategy.canary.trafficRoutings[0].service", text: "order-canary exists already"},
		"too large": {reason: "the original does not fit into an annotation", way: ways["custom"],
			yaml: []string{serviceYAML, strings.Replace(virtualServiceYAML, "hosts: [shop.example]",
				"hosts: [shop.example]\n  note: "+strings.Repeat("x", 110<<10), 1)},
			steps: []strategy.Traffic{weight(20)}, field: "strategy.canary.steps[0].traffic",
			text: "too large to be saved"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.apply(deploymentYAML)
			for _, y := range tc.yaml {
				b.apply(replaceSpace(y, b.namespace))
			}
			routing := tc.way.routing
			if tc.change != nil {
				tc.change(&routing)
			}
			refusals, holder, _ := b.preflight(routing, tc.steps...)
			require.Empty(t, holder)
			if tc.text == "" {
				require.Empty(t, refusals, tc.reason)
				return
			}
			require.Len(t, refusals, 1, "%s: %v", tc.reason, refusals)
			require.Equal(t, tc.field, refusals[0].Field, "%s: %s", tc.reason, refusals[0].Reason)
			require.Contains(t, refusals[0].Reason, tc.text, tc.reason)
		})
	}
}

// TestPreflight_ReportsHolder finds the release that holds an object of the routing, and names the object.
func TestPreflight_ReportsHolder(t *testing.T) {
	b, w := newBench(t), ways["httproute"]
	b.set(w)
	b.apply(deploymentYAML)
	b.begun(w)
	refusals, holder, on := b.preflight(w.routing, weight(20))
	require.Empty(t, refusals)
	require.Equal(t, ours, holder)
	require.Equal(t, "Service "+b.namespace+"/order", on)
}

// TestPreflight_ReportsMissingPermissions lists the permissions that the worker lacks.
func TestPreflight_ReportsMissingPermissions(t *testing.T) {
	b, w := newBench(t), ways["httproute"]
	b.set(w)
	powerless := rest.CopyConfig(b.config)
	powerless.Impersonate = rest.ImpersonationConfig{UserName: "nobody-" + b.namespace,
		Groups: []string{"system:authenticated"}}
	b.use(powerless, traffic.Options{})
	refusals, _, _ := b.preflight(w.routing, weight(20))
	require.Len(t, refusals, 1)
	require.Contains(t, refusals[0].Reason, "may not create services, delete services, get httproutes, get services, "+
		"list endpointslices, list pods, patch httproutes, patch services")
}

// Without permission to watch borrowed objects a release is still possible; the preflight reports the limitation.
func TestPreflight_WarnsAboutMissingWatchPermissions(t *testing.T) {
	b, w := newBench(t), ways["httproute"]
	b.set(w)
	b.apply(deploymentYAML)
	_, err := b.kube.RbacV1().Roles(b.namespace).Create(t.Context(),
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "worker"},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"},
				Verbs: []string{"get", "list", "create", "patch", "delete"}},
				{APIGroups: []string{"*"}, Resources: []string{"services"}, Verbs: []string{"watch"}}}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	user := "worker-" + b.namespace
	_, err = b.kube.RbacV1().RoleBindings(b.namespace).Create(t.Context(),
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "worker"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "worker"},
			Subjects: []rbacv1.Subject{{Kind: "User", Name: user}}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	worker := rest.CopyConfig(b.config)
	worker.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	for _, tc := range []struct {
		namespaces []string
		want       string
	}{
		{[]string{b.namespace}, "may not watch endpointslices, watch httproutes in namespace " + b.namespace},
		{nil, "may not list endpointslices, list httproutes, list services, watch endpointslices, watch httproutes, " +
			"watch services in all namespaces"},
	} {
		b.use(worker, traffic.Options{Namespaces: tc.namespaces})
		found := b.found(w.routing, weight(20))
		require.Empty(t, found.Refusals)
		require.Len(t, found.Notices, 1)
		require.Contains(t, found.Notices[0], tc.want)
	}
	b.use(b.config, traffic.Options{})
	require.Empty(t, b.found(w.routing, weight(20)).Notices, "nothing to report")
}

// TestNamespaceScript_OverridesBuiltIn: where the worker allows it, a script in the workload's namespace replaces the
// built-in one, its refusal names the step's field, and a script error names the line.
func TestNamespaceScript_OverridesBuiltIn(t *testing.T) {
	b, w := newBench(t), ways["ingress"]
	b.set(w)
	b.use(b.config, traffic.Options{Reach: routing.Reach{TenantScripts: []string{b.namespace}}})
	b.apply(deploymentYAML)
	_, err := b.kube.CoreV1().ConfigMaps(b.namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "slipway-traffic-scripts"},
		Data: map[string]string{
			"lua.traffic.routing.ingress.nginx": `
obj.annotations["mine/weight"] = obj.weight
if obj.matches then refuse("matches", "mine knows weights only") end
return obj.annotations`,
			"lua.traffic.routing.ingress.broken": "local x = nil\nreturn x.y",
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	b.must(b.twenty(w))
	require.Equal(t, "20", b.object("Ingress", "order-canary").GetAnnotations()["mine/weight"])
	b.must(b.request(rollout.RouteToStable, w.routing))
	b.must(b.request(rollout.RouteRemoveCanary, w.routing))
	refusals, _, _ := b.preflight(w.routing, byHeader("a", "b"))
	require.Equal(t, []rollout.Refusal{{Field: "strategy.canary.steps[0].matches", Reason: "mine knows weights only"}},
		refusals)
	broken := w.routing
	broken.Ingress = &strategy.IngressRef{Class: "broken", Name: "order"}
	refusals, _, _ = b.preflight(broken, weight(20))
	require.Len(t, refusals, 1)
	require.Contains(t, refusals[0].Reason, "lua.traffic.routing.ingress.broken of ConfigMap "+b.namespace+
		"/slipway-traffic-scripts, line 2: attempt to index a non-table object")
}
