package chart

import (
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	utiljson "sigs.k8s.io/json"

	"slipway.io/slipway/test/harness"
)

// The API server takes every object that the chart renders, without an unknown field, in a dry run.
func TestAPIServerTakesEveryObject(t *testing.T) {
	t.Parallel()
	stack := harness.SharedStack(t)
	groups, err := restmapper.GetAPIGroupResources(stack.Kube.Discovery())
	require.NoError(t, err)
	mapper, client := restmapper.NewDiscoveryRESTMapper(groups), stack.Dynamic(t)
	home, shop := stack.Namespace(t, "home"), stack.Namespace(t, "shop")
	for set, args := range map[string][]string{"Defaults": nil, "Party": sets["Party"],
		// The namespaces of others, which a dry run wants to be there, are those of the test.
		"Everything": append(sets["Everything"], "--set", "rbac.trafficScripts=false")} {
		args = append([]string{"template", "slipway", chartDir(), "--namespace", home, "--values"}, append([]string{values(t, nil)}, args...)...)
		args = append(args, "--set", "watchNamespaces={"+shop+"}", "--set", "servingNamespace.name="+shop)
		for _, object := range objectsOf(t, mustHelm(t, args...)) {
			t.Run(set+"/"+object.GetKind()+"/"+object.GetName(), func(t *testing.T) {
				t.Parallel()
				if object.GroupVersionKind().Group == monitoring.SchemeGroupVersion.Group {
					requireMonitoring(t, object)
					return
				}
				// Who converts Rollouts on a cluster of many engines is another one's matter. TestLongUpgradeInTheMiddleOfACanary has a cluster to itself.
				unstructured.RemoveNestedField(object.Object, "spec", "conversion")
				dryRun(t, mapper, client, object)
			})
		}
	}
}

func dryRun(t *testing.T, mapper meta.RESTMapper, client dynamic.Interface, object *unstructured.Unstructured) {
	t.Helper()
	kind := object.GroupVersionKind()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	require.NoError(t, err)
	resource := dynamic.ResourceInterface(client.Resource(mapping.Resource))
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		require.NotEmpty(t, object.GetNamespace(), "an object says which namespace it is in")
		resource = client.Resource(mapping.Resource).Namespace(object.GetNamespace())
	}
	body, err := object.MarshalJSON()
	require.NoError(t, err)
	force := true
	_, err = resource.Patch(context.Background(), object.GetName(), types.ApplyYAMLPatchType, body, metav1.PatchOptions{FieldManager: "chart-test",
		Force: &force, FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll}})
	require.NoError(t, err)
}

// requireMonitoring decodes an object of the Prometheus Operator, whose definitions the stack doesn't have, into the operator's own types.
func requireMonitoring(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	into, known := map[string]any{"ServiceMonitor": &monitoring.ServiceMonitor{}, "PodMonitor": &monitoring.PodMonitor{},
		"PrometheusRule": &monitoring.PrometheusRule{}}[object.GetKind()]
	require.True(t, known, object.GetKind())
	body, err := object.MarshalJSON()
	require.NoError(t, err)
	strict, err := utiljson.UnmarshalStrict(body, into)
	require.NoError(t, err)
	require.Empty(t, strict)
}

// Alerts and dashboard are those of deploy/monitoring.
func TestMonitoringIsThatOfTheRepository(t *testing.T) {
	t.Parallel()
	objects := render(t, sets["Everything"]...)
	rules, err := os.ReadFile(filepath.Join(os.Getenv("SLIPWAY_TEST_ROOT"), "deploy/monitoring/rules.yaml"))
	if os.IsNotExist(err) {
		for _, object := range objects {
			require.NotEqual(t, "PrometheusRule", object.GetKind())
		}
		return
	}
	require.NoError(t, err)
	want := objectsOf(t, "kind: Rules\napiVersion: v1\n"+string(rules))[0].Object["groups"]
	assert.Equal(t, asJSON(t, want), asJSON(t, find(t, objects, "PrometheusRule", "engine").Object["spec"].(map[string]any)["groups"]))
	dashboard, err := os.ReadFile(filepath.Join(os.Getenv("SLIPWAY_TEST_ROOT"), "deploy/monitoring/dashboard.json"))
	require.NoError(t, err)
	have, _, err := unstructured.NestedString(find(t, objects, "ConfigMap", "engine-dashboard").Object, "data", "slipway.json")
	require.NoError(t, err)
	assert.JSONEq(t, string(dashboard), have)
	for kind, name := range map[string]string{"ServiceMonitor": "engine-server", "PodMonitor": "engine-worker"} {
		assert.Contains(t, asJSON(t, find(t, objects, kind, name).Object["spec"]), `"replacement":"slipway/slipway/engine-`,
			"rules and dashboard look for jobs with slipway in their name")
	}
}

// Whatever Secrets hold, nothing that Helm renders or stores has it: pods refer to them by name.
func TestLongNoSecretIsRendered(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	stack := harness.SharedStack(t)
	home, shop := stack.Namespace(t, "home"), stack.Namespace(t, "shop")
	const secret = "s3cr3t-of-this-test"
	for _, name := range []string{"token", "temporal-ca", "temporal-client", "temporal-api-key", "codec-keys", "api-tls", "api-ca", "kuscia-tls", "kuscia-ca",
		"kuscia-token", "webhook-tls", "packages", "registry"} {
		_, err := stack.Kube.CoreV1().Secrets(home).Create(context.Background(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name},
			StringData: map[string]string{"token": secret, "ca.crt": secret, "tls.crt": secret, "tls.key": secret, "api-key": secret, "current": secret}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	i := &installation{node: node{t: t, stack: stack}, release: harness.RandomName("slipway"), namespace: home}
	content := everything(t)
	content["watchNamespaces"], content["servingNamespace"] = []string{shop}, map[string]any{"name": shop, "create": false}
	content["crds"] = map[string]any{"install": false}
	delete(content, "fullnameOverride")
	delete(content, "guard") // which would hold for the whole cluster
	delete(content, "monitoring")
	delete(content, "temporalSchema") // which waits for a database; TestSoakTemporalsSchemaComesFirst has one
	content["rbac"].(map[string]any)["trafficScripts"] = false
	common := []string{i.release, chartDir(), "--values", values(t, content)}
	rendered := i.helm(append([]string{"template", "--dry-run=server"}, common...)...)
	i.helm(append([]string{"install"}, common...)...)
	t.Cleanup(func() { _, _, _ = i.tryHelm("uninstall", i.release) })
	stored := i.helm("get", "all", i.release)
	for _, text := range []string{rendered, stored} {
		require.Contains(t, text, "secretName: temporal-api-key")
		require.NotContains(t, text, secret)
		require.NotContains(t, text, base64.StdEncoding.EncodeToString([]byte(secret)))
	}
	for _, object := range objectsOf(t, rendered) {
		require.NotEqual(t, "Secret", object.GetKind())
	}
}
