package traffic

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	discoveryfake "k8s.io/client-go/discovery/fake"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
)

func scriptsIn(namespace, name, key string) runtime.Object {
	return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{key: "return nil"}}
}

// A script in the workload's namespace comes first, where the worker uses those, then one in the worker's own
// namespace. A script in the ConfigMap of Kruise Rollouts has the same precedence as there: before the built-in one for
// a class of Ingress, after it for a custom object.
func TestScriptSource_Precedence(t *testing.T) {
	t.Parallel()
	const own, shared = "slipway-traffic-scripts", "kruise-rollout-configuration"
	nginx, edge := traffic.IngressScript("nginx"), traffic.IngressScript("edge")
	virtualService := traffic.CustomScript(strategy.ObjectRef{APIVersion: "networking.istio.io/v1",
		Kind: "VirtualService"})
	proxy := traffic.CustomScript(strategy.ObjectRef{APIVersion: "projectcontour.io/v1", Kind: "HTTPProxy"})
	require.Equal(t, "lua.traffic.routing.HTTPProxy.projectcontour.io", proxy.Key)
	for _, c := range []struct {
		reason  string
		script  traffic.Script
		objects []runtime.Object
		want    string
	}{
		{"a built-in class needs no ConfigMap", nginx, nil, "nginx.lua (built in)"},
		{"the cluster's script comes before a built-in class", nginx,
			[]runtime.Object{scriptsIn("kruise-rollout", shared, nginx.Key)},
			nginx.Key + " of ConfigMap kruise-rollout/" + shared},
		{"the namespace's comes before all", nginx,
			[]runtime.Object{scriptsIn("kruise-rollout", shared, nginx.Key), scriptsIn("shop", own, nginx.Key),
				scriptsIn("slipway", own, nginx.Key)}, nginx.Key + " of ConfigMap shop/" + own},
		{"the worker's own namespace comes before the cluster's", nginx,
			[]runtime.Object{scriptsIn("kruise-rollout", shared, nginx.Key), scriptsIn("slipway", own, nginx.Key)},
			nginx.Key + " of ConfigMap slipway/" + own},
		{"and before a built-in kind", virtualService,
			[]runtime.Object{scriptsIn("slipway", own, virtualService.Key)},
			virtualService.Key + " of ConfigMap slipway/" + own},
		{"a class of the cluster's own", edge, []runtime.Object{scriptsIn("kruise-rollout", shared, edge.Key)},
			edge.Key + " of ConfigMap kruise-rollout/" + shared},
		{"a kind of the cluster's own", proxy, []runtime.Object{scriptsIn("kruise-rollout", shared, proxy.Key)},
			proxy.Key + " of ConfigMap kruise-rollout/" + shared},
		{"a built-in kind comes before the cluster's", virtualService,
			[]runtime.Object{scriptsIn("kruise-rollout", shared, virtualService.Key)}, "VirtualService.lua (built in)"},
		{"another namespace's script is not used", edge,
			[]runtime.Object{scriptsIn("cart", own, edge.Key), scriptsIn("shop", shared, edge.Key)}, ""},
	} {
		a := scriptsOf(Options{Reach: traffic.Reach{TenantScripts: []string{"shop"}}, ScriptsNamespace: "slipway"},
			c.objects...)
		found, err := a.script(context.Background(), "shop", c.script)
		name := found.Name
		if err != nil {
			name = ""
		}
		require.Equal(t, c.want, name, c.reason)
		require.Equal(t, c.want == "", failure.Is(err, failure.Refused), "%s: %v", c.reason, err)
	}
}

// scriptsOf returns the activities of a cluster with these objects.
func scriptsOf(o Options, objects ...runtime.Object) *Activities {
	return &Activities{options: o, cluster: kube.NewCluster(fake.NewClientset(),
		dynamicfake.NewSimpleDynamicClient(scheme.Scheme, objects...), nil)}
}

// A script that the worker does not use is never replaced by another one in silence.
func TestScriptSource_RefusesTenantScript_ByDefault(t *testing.T) {
	t.Parallel()
	nginx := traffic.IngressScript("nginx")
	objects := []runtime.Object{scriptsIn("shop", traffic.ScriptsConfigMap, nginx.Key),
		scriptsIn("slipway", traffic.ScriptsConfigMap, nginx.Key)}
	for _, allowed := range [][]string{nil, {"bank"}} {
		a := scriptsOf(Options{Reach: traffic.Reach{TenantScripts: allowed}, ScriptsNamespace: "slipway"}, objects...)
		_, err := a.script(context.Background(), "shop", nginx)
		require.True(t, failure.Is(err, failure.Refused), "%v", err)
		require.ErrorContains(t, err, nginx.Key+" of ConfigMap shop/slipway-traffic-scripts is not used")
		require.ErrorContains(t, err, "--tenant-scripts shop")
		require.ErrorContains(t, err, "ConfigMap slipway/slipway-traffic-scripts or "+
			"kruise-rollout/kruise-rollout-configuration")
		found, err := a.script(context.Background(), "cart", nginx)
		require.NoError(t, err, "a namespace without scripts of its own")
		require.False(t, found.Tenant)
	}
	found, err := scriptsOf(Options{ScriptsNamespace: "shop"}, objects...).script(context.Background(), "shop", nginx)
	require.NoError(t, err)
	require.False(t, found.Tenant, "a workload beside the worker: the scripts are the administrator's")
}

// All users who may write ConfigMaps in a namespace of workloads are tenants, also where the worker's pod is.
func TestScriptsNamespace_IsNoneOfTheWorkloads(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	objects := dynamicfake.NewSimpleDynamicClient(scheme.Scheme,
		scriptsIn("shop", traffic.ScriptsConfigMap, traffic.IngressScript("edge").Key))
	a, err := New(client, objects, Options{Namespaces: []string{"shop", "bank"}, ScriptsNamespace: "shop"})
	require.NoError(t, err)
	for namespace, want := range map[string]string{"shop": "--tenant-scripts shop", "bank": "there is no script"} {
		_, err := a.script(context.Background(), namespace, traffic.IngressScript("edge"))
		require.ErrorContains(t, err, want)
	}
}

// Without permission to read what it would not use, a worker goes on.
func TestScriptSource_IsBuiltIn_WhenTenantScriptsAreForbidden(t *testing.T) {
	t.Parallel()
	objects := dynamicfake.NewSimpleDynamicClient(scheme.Scheme)
	objects.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "any", nil)
	})
	a := &Activities{cluster: kube.NewCluster(fake.NewClientset(), objects, nil)}
	found, err := a.script(context.Background(), "shop", traffic.IngressScript("nginx"))
	require.NoError(t, err)
	require.True(t, found.BuiltIn)
	a.options.Reach.TenantScripts = []string{"shop"}
	_, err = a.script(context.Background(), "shop", traffic.IngressScript("nginx"))
	require.True(t, apierrors.IsForbidden(err), "a script that it would use may be there: %v", err)
}

func TestScriptSource_IsBuiltIn_WhenReferenceIsForbidden(t *testing.T) {
	t.Parallel()
	objects := dynamicfake.NewSimpleDynamicClient(scheme.Scheme)
	objects.PrependReactor("get", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetNamespace() == "shop" {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"},
			"kruise-rollout-configuration", nil)
	})
	a := &Activities{cluster: kube.NewCluster(fake.NewClientset(), objects, nil)}
	found, err := a.script(context.Background(), "shop", traffic.IngressScript("nginx"))
	require.NoError(t, err)
	require.Equal(t, "nginx.lua (built in)", found.Name)
}

func TestHTTPRoutes_UseBestServedVersion(t *testing.T) {
	t.Parallel()
	serves := func(version string) *metav1.APIResourceList {
		return &metav1.APIResourceList{GroupVersion: "gateway.networking.k8s.io/" + version,
			APIResources: []metav1.APIResource{{Name: "httproutes", Kind: "HTTPRoute", Namespaced: true}}}
	}
	for _, c := range []struct {
		reason string
		lists  []*metav1.APIResourceList
		want   string
	}{
		{"v1 comes first", []*metav1.APIResourceList{serves("v1beta1"), serves("v1")}, "v1"},
		{"an older cluster has only v1beta1", []*metav1.APIResourceList{serves("v1beta1")}, "v1beta1"},
		{"older versions are not supported", []*metav1.APIResourceList{serves("v1alpha2")}, ""},
	} {
		found, err := newKinds(&discoveryfake.FakeDiscovery{Fake: &clienttesting.Fake{Resources: c.lists}}).httpRoutes()
		require.Equal(t, c.want, found.gvr.Version, c.reason)
		if c.want == "" {
			require.ErrorContains(t, err, "the cluster has no gateway.networking.k8s.io/v1",
				"the error names what to install")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, traffic.BorrowsRules, found.borrows, "only the rules of the route may be restored")
	}
}
