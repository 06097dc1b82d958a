package e2e

import (
	"context"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admission "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/definition"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// kruiseCluster is a cluster on which Kruise Rollouts appears to be installed.
type kruiseCluster struct {
	t     *testing.T
	stack harness.Stack
}

const kruiseWebhooks = "kruise-rollout-mutating-webhook-configuration"

// installKruiseRollouts makes the cluster look as if Kruise Rollouts were installed but its controller down: its CRD,
// with a conversion webhook that does not answer, and its mutating webhooks.
func installKruiseRollouts(t *testing.T, s harness.Stack) kruiseCluster {
	t.Helper()
	client, err := apiextensions.NewForConfig(s.REST)
	require.NoError(t, err)
	crd, err := client.CustomResourceDefinitions().Get(context.Background(), definition.Name, metav1.GetOptions{})
	require.NoError(t, err)
	crd.Labels = nil
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig: &apiextensionsv1.WebhookClientConfig{
				Service: &apiextensionsv1.ServiceReference{Namespace: "kruise-rollout",
					Name: "kruise-rollout-webhook-service"}}}}
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Served = true
	}
	_, err = client.CustomResourceDefinitions().Update(context.Background(), crd, metav1.UpdateOptions{})
	require.NoError(t, err)
	hooks := &admission.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: kruiseWebhooks}}
	_, err = s.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(context.Background(), hooks,
		metav1.CreateOptions{})
	require.NoError(t, err)
	return kruiseCluster{t, s}
}

func (c kruiseCluster) kubectl(args ...string) string {
	c.t.Helper()
	out, err := exec.Command(c.stack.Binary("kubectl"),
		append(args, "--kubeconfig", c.stack.Kubeconfig)...).CombinedOutput()
	require.NoError(c.t, err, "kubectl %v: %s", args, out)
	return string(out)
}

// A cluster migrates from Kruise Rollouts as docs/kruise.md describes. Until its webhooks are deleted and its CRD is
// labelled, the engine ignores Rollouts and the gate is refused; afterwards existing Rollouts are used unchanged.
func TestLongKruiseMigration_IgnoresRollouts_UntilWebhooksDeleted(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	p := harness.NewPrivateStack(t) // on a shared stack, all other releases would wait too
	c := installKruiseRollouts(t, p.Stack)
	before := harness.Start(t, harness.Options{Stack: &p.Stack})
	d := &declared{release: prepareUnobserved(t, before, deploymentCell(strategy.StylePartition, harness.NoProvider),
		nil)}
	document := d.document()
	document["metadata"].(map[string]any)["finalizers"] = []any{v1beta1.Finalizer} // as its controller sets it
	d.create(document, "owner")
	require.Never(t, func() bool {
		return d.get().Status.Phase != "" || d.object().GetLabels()[gate.Label] != ""
	}, 3*time.Second, harness.Tick,
		"the engine writes neither to a Rollout of Kruise's nor to its workload")
	_, out := runGuardCommand(t, p.Stack, p.Kubeconfig, "install", "--name", "without")
	require.Contains(t, out, "does not have Slipway's definition of Rollouts",
		"the guard without the gate can be installed")
	runGuardCommand(t, p.Stack, p.Kubeconfig, "remove", "--name", "without")

	c.kubectl("label", "crd", definition.Name, "app.kubernetes.io/managed-by=slipway", "--overwrite")
	const remedy = "kubectl delete mutatingwebhookconfiguration " + kruiseWebhooks
	code, out := runGuardCommand(t, p.Stack, p.Kubeconfig, "install")
	require.Equal(t, 1, code, "%s", out)
	require.Contains(t, out, remedy, "the gate is refused")
	c.kubectl("delete", "mutatingwebhookconfiguration", kruiseWebhooks)
	for _, process := range before.Processes {
		require.NoError(t, process.Stop())
	}
	harness.LabelNamespace(t, p.Kube, d.Apps, kruise.KeyEngine, "") // any engine may handle them
	e := harness.Start(t, harness.Options{Stack: &p.Stack, Kubeconfig: func(e *harness.Engine) string {
		return e.KubeconfigAs(t, harness.EngineUser)
	}})
	now := e.WithT(t)
	now.Apps = d.Apps
	d.Engine = now
	g := p.InstallGuard(t)
	g.EnforceOn(t, d.Apps)
	d.guard = g
	d.waitObject("Healthy", func(r *v1beta1.Rollout) bool { return r.Status.Phase == v1beta1.PhaseHealthy })
	d.waitGate()

	hooks := &admission.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: kruiseWebhooks}}
	_, err := p.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(context.Background(), hooks,
		metav1.CreateOptions{})
	require.NoError(t, err, "the webhook is installed again")
	d.setImage("alice", harness.NewImage(d.rollout.Name))
	d.waitObject("refused", func(r *v1beta1.Rollout) bool {
		for _, c := range r.Status.Conditions {
			if c.Type == v1beta1.ConditionStalled {
				return strings.Contains(c.Message, remedy) && r.Status.Message == c.Message
			}
		}
		return false
	})
	refused := d.RolloutVerb(d.rollout.Name, "undo", `{}`)
	require.Equal(t, http.StatusUnprocessableEntity, refused.Status, "%s", refused.Body)
	require.Contains(t, string(refused.Body), remedy, "an undo would begin a release too")
	c.kubectl("delete", "mutatingwebhookconfiguration", kruiseWebhooks)
	d.waitStep(1)
}
