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

// TestRenderedObjects_AreAcceptedByAPIServer checks in a dry run that the API server accepts every rendered object
// without unknown fields.
func TestRenderedObjects_AreAcceptedByAPIServer(t *testing.T) {
	t.Parallel()
	stack := harness.SharedStack(t)
	groups, err := restmapper.GetAPIGroupResources(stack.Kube.Discovery())
	require.NoError(t, err)
	mapper, client := restmapper.NewDiscoveryRESTMapper(groups), stack.Dynamic(t)
	home, shop := stack.Namespace(t, "home"), stack.Namespace(t, "shop")
	for set, args := range map[string][]string{"Defaults": nil, "Party": sets["Party"],
		// The test provides the namespaces that a dry run requires.
		"Everything": append(sets["Everything"], "--set", "rbac.trafficScripts=false")} {
		args = append([]string{"template", "slipway", chartDir(), "--namespace", home, "--values"},
			append([]string{values(t, nil)}, args...)...)
		args = append(args, "--set", "watchNamespaces={"+shop+"}", "--set", "servingNamespace.name="+shop)
		for _, object := range objectsOf(t, mustHelm(t, args...)) {
			t.Run(set+"/"+object.GetKind()+"/"+object.GetName(), func(t *testing.T) {
				t.Parallel()
				if object.GroupVersionKind().Group == monitoring.SchemeGroupVersion.Group {
					requireMonitoring(t, object)
					return
				}
				// The conversion of Rollouts on a shared cluster belongs to another engine.
				// TestLongUpgrade_ContinuesReleases_InMidCanary has its own cluster.
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
		require.NotEmpty(t, object.GetNamespace(), "an object must name its namespace")
		resource = client.Resource(mapping.Resource).Namespace(object.GetNamespace())
	}
	body, err := object.MarshalJSON()
	require.NoError(t, err)
	force := true
	_, err = resource.Patch(context.Background(), object.GetName(), types.ApplyYAMLPatchType, body,
		metav1.PatchOptions{FieldManager: "chart-test",
			Force: &force, FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll}})
	require.NoError(t, err)
}

// requireMonitoring decodes an object of the Prometheus Operator into the operator's own types, since the stack lacks
// its definitions.
func requireMonitoring(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	into, known := map[string]any{"ServiceMonitor": &monitoring.ServiceMonitor{},
		"PodMonitor":     &monitoring.PodMonitor{},
		"PrometheusRule": &monitoring.PrometheusRule{}}[object.GetKind()]
	require.True(t, known, object.GetKind())
	body, err := object.MarshalJSON()
	require.NoError(t, err)
	strict, err := utiljson.UnmarshalStrict(body, into)
	require.NoError(t, err)
	require.Empty(t, strict)
}

// TestChartMonitoring_EqualsRepositoryFiles checks that alerts and dashboard equal those of deploy/monitoring.
func TestChartMonitoring_EqualsRepositoryFiles(t *testing.T) {
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
	assert.Equal(t, asJSON(t, want), asJSON(t, find(t, objects, "PrometheusRule",
		"engine").Object["spec"].(map[string]any)["groups"]))
	dashboard, err := os.ReadFile(filepath.Join(os.Getenv("SLIPWAY_TEST_ROOT"), "deploy/monitoring/dashboard.json"))
	require.NoError(t, err)
	have, _, err := unstructured.NestedString(find(t, objects, "ConfigMap", "engine-dashboard").Object, "data",
		"slipway.json")
	require.NoError(t, err)
	assert.JSONEq(t, string(dashboard), have)
	for kind, name := range map[string]string{"ServiceMonitor": "engine-server", "PodMonitor": "engine-worker"} {
		assert.Contains(t, asJSON(t, find(t, objects, kind, name).Object["spec"]),
			`"replacement":"slipway/slipway/engine-`,
			"rules and dashboard select jobs with slipway in their name")
	}
}

// TestLongSecrets_AreNotRendered checks that nothing that Helm renders or stores contains the content of a Secret: pods
// refer to Secrets by name.
func TestLongSecrets_AreNotRendered(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	stack := harness.SharedStack(t)
	home, shop := stack.Namespace(t, "home"), stack.Namespace(t, "shop")
	const secret = "s3cr3t-of-this-test"
	for _, name := range []string{"token", "temporal-ca", "temporal-client", "temporal-api-key", "codec-keys",
		"api-tls", "api-ca", "kuscia-tls", "kuscia-ca",
		"kuscia-token", "webhook-tls", "webhook-client-ca", "packages", "registry"} {
		_, err := stack.Kube.CoreV1().Secrets(home).Create(context.Background(),
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name},
				StringData: map[string]string{"token": secret, "ca.crt": secret, "tls.crt": secret, "tls.key": secret,
					"api-key": secret, "current": secret}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	i := &installation{node: node{t: t, stack: stack}, release: harness.RandomName("slipway"), namespace: home}
	content := allOptions(t)
	content["watchNamespaces"], content["servingNamespace"] = []string{shop},
		map[string]any{"name": shop, "create": false}
	content["crds"] = map[string]any{"install": false}
	delete(content, "fullnameOverride")
	delete(content, "guard") // a guard would apply to the whole cluster
	delete(content, "monitoring")
	// it needs a database, as in TestSoakTemporalSchemaJob_RunsBeforeInstallAndUpgrade
	delete(content, "temporalSchema")
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
