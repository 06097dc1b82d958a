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

// theirCluster is a cluster on which Kruise Rollouts is installed, as far as others can tell.
type theirCluster struct {
	t     *testing.T
	stack harness.Stack
}

const theirWebhooks = "kruise-rollout-mutating-webhook-configuration"

// installTheirs has the cluster look as Kruise Rollouts leaves it, its controller being away: its definition, which a dead webhook converts, and
// its webhooks.
func installTheirs(t *testing.T, s harness.Stack) theirCluster {
	t.Helper()
	client, err := apiextensions.NewForConfig(s.REST)
	require.NoError(t, err)
	crd, err := client.CustomResourceDefinitions().Get(context.Background(), definition.Name, metav1.GetOptions{})
	require.NoError(t, err)
	crd.Labels = nil
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
		ConversionReviewVersions: []string{"v1"},
		ClientConfig:             &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Namespace: "kruise-rollout", Name: "kruise-rollout-webhook-service"}}}}
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Served = true
	}
	_, err = client.CustomResourceDefinitions().Update(context.Background(), crd, metav1.UpdateOptions{})
	require.NoError(t, err)
	hooks := &admission.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: theirWebhooks}}
	_, err = s.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(context.Background(), hooks, metav1.CreateOptions{})
	require.NoError(t, err)
	return theirCluster{t, s}
}

func (c theirCluster) kubectl(args ...string) string {
	c.t.Helper()
	out, err := exec.Command(c.stack.Binary("kubectl"), append(args, "--kubeconfig", c.stack.Kubeconfig)...).CombinedOutput()
	require.NoError(c.t, err, "kubectl %v: %s", args, out)
	return string(out)
}

// A cluster moves over from Kruise Rollouts as docs/kruise.md says. Until its parts are gone and its definition is labelled, Rollouts are left alone,
// and the gate is refused; then they go on as they are.
func TestLongMovingOverFromKruiseRollouts(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	p := harness.NewPrivateStack(t) // on the shared one, all other releases would wait as well
	c := installTheirs(t, p.Stack)
	before := harness.Start(t, harness.Options{Stack: &p.Stack})
	d := &declared{release: place(t, before, deploymentBy(strategy.StylePartition, harness.NoProvider), nil)}
	document := d.document()
	document["metadata"].(map[string]any)["finalizers"] = []any{v1beta1.Finalizer} // as its controller has put it there
	d.create(document, "owner")
	require.Never(t, func() bool { return d.asked().Status.Phase != "" || d.object().GetLabels()[gate.Label] != "" }, 3*time.Second, harness.Tick,
		"a Rollout of theirs is not written to, nor is its workload marked")
	_, out := guardCommand(t, p.Stack, p.Kubeconfig, "install", "--name", "without")
	require.Contains(t, out, "another product's, so nothing refers to them", "what guards releases over HTTP disturbs nobody")
	guardCommand(t, p.Stack, p.Kubeconfig, "remove", "--name", "without")

	c.kubectl("label", "crd", definition.Name, "app.kubernetes.io/managed-by=slipway", "--overwrite")
	const remedy = "kubectl delete mutatingwebhookconfiguration " + theirWebhooks
	code, out := guardCommand(t, p.Stack, p.Kubeconfig, "install")
	require.Equal(t, 1, code, "%s", out)
	require.Contains(t, out, remedy, "the gate is refused")
	c.kubectl("delete", "mutatingwebhookconfiguration", theirWebhooks)
	for _, process := range before.Processes {
		require.NoError(t, process.Stop())
	}
	harness.LabelNamespace(t, p.Kube, d.Apps, kruise.KeyEngine, "") // any engine may look after them
	e := harness.Start(t, harness.Options{Stack: &p.Stack, Kubeconfig: func(e *harness.Engine) string { return e.KubeconfigAs(t, harness.EngineUser) }})
	now := e.In(t)
	now.Apps = d.Apps
	d.Engine = now
	g := p.InstallGuard(t)
	g.Over(t, d.Apps)
	d.guard = g
	d.waitObject("Healthy", func(r *v1beta1.Rollout) bool { return r.Status.Phase == v1beta1.PhaseHealthy })
	d.waitGate()

	hooks := &admission.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: theirWebhooks}}
	_, err := p.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(context.Background(), hooks, metav1.CreateOptions{})
	require.NoError(t, err, "somebody installs it once more")
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
	c.kubectl("delete", "mutatingwebhookconfiguration", theirWebhooks)
	d.waitStep(1)
}
