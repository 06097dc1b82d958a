package chart

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/definition"
	rolloutalpha "slipway.io/slipway/release/kruise/v1alpha1"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/test/harness"
)

// TestLongUpgrade_ContinuesReleases_InMidCanary upgrades a chart with everything that it can install in a cluster, and
// rolls it back, during a canary and a release by kubectl. Processes are replaced in the order of docs/operations.md.
// Both releases must end normally. An uninstall keeps definitions, records and servings.
func TestLongUpgrade_ContinuesReleases_InMidCanary(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	p := harness.NewPrivateStack(t)
	removeDefinitions(t, p.Stack)
	u := &upgradeTest{t: t, port: number(t, harness.FreePort(t))}
	u.install(p.Stack)
	u.startCanary()
	u.declareRollout()

	u.change("upgrade", u.release, chartDir(), "--values", u.values("debug"))
	require.Contains(t, u.deployment("worker").Spec.Template.Spec.Containers[0].Args, "--log-level=debug")
	u.approveStep(1)
	u.change("rollback", u.release, "1")
	require.Contains(t, u.deployment("worker").Spec.Template.Spec.Containers[0].Args, "--log-level=info")
	u.approveStep(2)
	u.engine.WaitPhase("front", rollout.PhaseHealthy)
	u.finishRollout()
	u.uninstall()
}

// upgradeTest is an installation during releases.
type upgradeTest struct {
	*installation
	t      *testing.T
	port   int
	engine *harness.Engine
	// temporal, apps and servings are the names of namespaces.
	temporal, apps, servings string
	workers                  []*pod
}

// removeDefinitions deletes all definitions, as on a cluster where Slipway was never installed.
func removeDefinitions(t *testing.T, stack harness.Stack) {
	t.Helper()
	client, err := apiextensions.NewForConfig(stack.REST)
	require.NoError(t, err)
	list, err := client.CustomResourceDefinitions().List(context.Background(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, crd := range list.Items {
		require.NoError(t, client.CustomResourceDefinitions().Delete(context.Background(), crd.Name,
			metav1.DeleteOptions{}))
		// There are no objects yet. The API server's finalizer retries only after minutes if it was still preparing to
		// serve the definition, so remove the finalizers.
		free := []byte(`{"metadata":{"finalizers":null}}`)
		_, err := client.CustomResourceDefinitions().Patch(context.Background(), crd.Name, types.MergePatchType, free,
			metav1.PatchOptions{})
		require.True(t, err == nil || apierrors.IsNotFound(err), "%v", err)
	}
	require.Eventually(t, func() bool {
		list, err := client.CustomResourceDefinitions().List(context.Background(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	}, harness.Patience, harness.Tick, "definitions still exist")
}

// number returns a port as a number, as values need it.
func number(t testing.TB, port string) int {
	t.Helper()
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	return n
}

func (u *upgradeTest) content(stack harness.Stack, level string) map[string]any {
	return map[string]any{
		"temporal": temporalValues(stack, u.temporal), "watchNamespaces": []string{u.apps},
		"log":              map[string]any{"level": level},
		"servingNamespace": map[string]any{"name": u.servings}, "servings": map[string]any{"enabled": true},
		"rollouts": map[string]any{"enabled": true, "webhook": map[string]any{"port": u.port}},
		"guard":    map[string]any{"install": true},
		"worker":   workerValues(stack, 2),
	}
}

func (u *upgradeTest) values(level string) string { return values(u.t, u.content(u.stack, level)) }

func (u *upgradeTest) install(stack harness.Stack) {
	u.temporal, u.servings = stack.TemporalNamespace(u.t), harness.RandomName("servings")
	u.apps = stack.Namespace(u.t, "apps")
	home := stack.Namespace(u.t, "home")
	harness.LabelNamespace(u.t, stack.Kube, u.apps, guard.LabelGuard, "")
	harness.LabelNamespace(u.t, stack.Kube, u.apps, kruise.KeyEngine, home)
	u.installation = install(u.t, stack, home, u.content(stack, "info"))
	u.routeWebhooks()
	u.workers = u.run("worker", "server")
	u.engine = u.installation.engine(u.temporal, u.apps)
}

// routeWebhooks lets the API server reach the webhooks through the chart's Service, which gets the name of this
// machine.
func (u *upgradeTest) routeWebhooks() {
	u.proxyWebhooks(u.port)
	patch := `{"spec":{"type":"ExternalName","externalName":"localhost","clusterIP":null,"clusterIPs":null}}`
	services := u.stack.Kube.CoreV1().Services(u.namespace)
	_, err := services.Patch(context.Background(), u.release+"-webhook", types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	require.NoError(u.t, err)
}

// change runs helm and then replaces the processes, workers first.
func (u *upgradeTest) change(args ...string) {
	u.t.Helper()
	before := u.definition()
	u.helm(args...)
	assert.Equal(u.t, before.Spec, u.definition().Spec, "Helm must keep what servers have written into the definition")
	u.workers = u.replace("worker", u.workers)
	u.replace("server", u.backends())
}

func (u *upgradeTest) definition() *apiextensionsv1.CustomResourceDefinition {
	u.t.Helper()
	client, err := apiextensions.NewForConfig(u.stack.REST)
	require.NoError(u.t, err)
	found, err := client.CustomResourceDefinitions().Get(context.Background(), definition.Name, metav1.GetOptions{})
	require.NoError(u.t, err)
	return found
}

func (u *upgradeTest) startCanary() {
	e := u.engine
	e.Subject(harness.Deployment, "front", nil)
	e.Route(harness.Nginx, "front")
	e.StartRollout(harness.Rollout{Kind: harness.Deployment, Name: "front",
		Strategy: strategy.Strategy{Style: strategy.StylePartition,
			Routings: e.RoutingOf(harness.Nginx, "front"),
			Steps:    []strategy.Step{harness.Step("25%", 20), harness.Step("50%", 50)}}})
	e.WaitForApproval("front", 1)
}

// approveStep approves the step at which the canary waits, with the processes replaced.
func (u *upgradeTest) approveStep(step int) {
	at := u.engine.WaitForApproval("front", step)
	require.Equal(u.t, []int32{20, 50}[step-1], at.Traffic.CanaryWeight)
	u.requireGuarded()
	u.engine.Approve("front", at)
}

// requireGuarded checks the guard: it reverts another client's edit of a field that the canary has borrowed.
func (u *upgradeTest) requireGuarded() {
	u.t.Helper()
	edit := []byte(`{"spec":{"selector":{"app":"other"}}}`)
	edited, err := u.stack.Kube.CoreV1().Services(u.apps).Patch(context.Background(), "front", types.MergePatchType,
		edit,
		metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	require.NoError(u.t, err)
	require.Equal(u.t, "front", edited.Spec.Selector["app"])
}

// declareRollout creates a Rollout in v1alpha1, which servers convert, and changes the image of its workload, which is
// then held.
func (u *upgradeTest) declareRollout() {
	e := u.engine
	e.Subject(harness.Deployment, "declared", nil)
	declared := &unstructured.Unstructured{Object: map[string]any{"apiVersion": rolloutalpha.GroupVersion.String(),
		"kind": v1beta1.Kind,
		"metadata": map[string]any{"name": "declared",
			"annotations": map[string]any{"rollouts.kruise.io/rolling-style": "partition"}},
		"spec": map[string]any{
			"objectRef": map[string]any{"workloadRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
				"name": "declared"}},
			"strategy": map[string]any{"canary": map[string]any{"steps": []any{map[string]any{"replicas": "25%"},
				map[string]any{"replicas": "50%"}}}}}}}
	_, err := e.Dynamic(u.t).Resource(rolloutalpha.Resource).Namespace(u.apps).Create(context.Background(), declared,
		metav1.CreateOptions{})
	require.NoError(u.t, err)
	require.Eventually(u.t, func() bool {
		return e.Object(harness.Deployment, "declared").GetLabels()["slipway.io/gate"] != ""
	}, harness.Patience, harness.Tick,
		"the Rollout's workload has no gate label")
	e.SetImage(harness.Deployment, "declared", harness.NewImage("declared"))
	e.WaitForApproval("declared", 1)
}

func (u *upgradeTest) finishRollout() {
	for step := range 2 {
		u.engine.Approve("declared", u.engine.WaitForApproval("declared", step+1))
	}
	u.engine.WaitPhase("declared", rollout.PhaseHealthy)
	require.Eventually(u.t, func() bool {
		phase, _, _ := unstructured.NestedString(u.engine.ReadObject(rolloutalpha.Resource, "declared").Object,
			"status", "phase")
		return phase == "Healthy"
	}, harness.Patience, harness.Tick, "a client of v1alpha1 does not see the end")
}

// uninstall uninstalls the engine and checks what must remain.
func (u *upgradeTest) uninstall() {
	u.helm("uninstall", u.release)
	_, err := u.stack.Kube.AppsV1().Deployments(u.namespace).Get(context.Background(), u.release+"-worker",
		metav1.GetOptions{})
	require.True(u.t, apierrors.IsNotFound(err), "%v", err)
	require.Len(u.t, u.definitions(), 8)
	all := u.stack.Dynamic(u.t).Resource(v1alpha1.GroupVersion.WithResource("releaserecords")).Namespace(u.namespace)
	records, err := all.List(context.Background(), metav1.ListOptions{})
	require.NoError(u.t, err)
	require.NotEmpty(u.t, records.Items)
	namespace, err := u.stack.Kube.CoreV1().Namespaces().Get(context.Background(), u.servings, metav1.GetOptions{})
	require.NoError(u.t, err)
	require.Equal(u.t, corev1.NamespaceActive, namespace.Status.Phase)
	// The same release can be installed over its leftovers, and another release can take them over.
	u.helm("install", u.release, chartDir(), "--values", u.values("info"))
	u.helm("uninstall", u.release)
	other := harness.RandomName("slipway")
	u.helm("install", other, chartDir(), "--values", u.values("info"), "--take-ownership", "--force-conflicts")
	for _, crd := range u.definitions() {
		require.Equal(u.t, other, crd.Annotations["meta.helm.sh/release-name"])
	}
}

// definitions returns Slipway's definitions on the cluster.
func (u *upgradeTest) definitions() []apiextensionsv1.CustomResourceDefinition {
	u.t.Helper()
	client, err := apiextensions.NewForConfig(u.stack.REST)
	require.NoError(u.t, err)
	ours := metav1.ListOptions{LabelSelector: definition.LabelPartOf + "=" + definition.ManagedBySlipway}
	list, err := client.CustomResourceDefinitions().List(context.Background(), ours)
	require.NoError(u.t, err)
	return list.Items
}
