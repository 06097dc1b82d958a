package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// On a cluster that still has the webhooks of Kruise Rollouts no release begins, and no gate is installed: both say what is to be removed.
// Once that is done, the release begins by itself.
func TestLongNothingBeginsBesideKruiseRollouts(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	p := harness.NewPrivateStack(t) // on the shared one, all other releases would wait as well
	e := harness.Start(t, harness.Options{Stack: &p.Stack, Kubeconfig: func(e *harness.Engine) string { return e.KubeconfigAs(t, harness.EngineUser) }})
	d := declare(t, e, p.InstallGuard(t), deploymentBy(strategy.StylePartition, harness.NoProvider), nil)
	hooks := p.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations()
	theirs := &admission.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "kruise-rollout-mutating-webhook-configuration"}}
	_, err := hooks.Create(context.Background(), theirs, metav1.CreateOptions{})
	require.NoError(t, err)

	const remedy = "kubectl delete mutatingwebhookconfiguration kruise-rollout-mutating-webhook-configuration"
	code, out := guardCommand(t, p.Stack, p.Kubeconfig, "install", "--name", "second")
	require.Equal(t, 1, code, "%s", out)
	require.Contains(t, out, remedy, "the gate is refused")

	d.setImage("alice", harness.NewImage(d.rollout.Name))
	d.waitObject("refused", func(r *v1beta1.Rollout) bool {
		for _, c := range r.Status.Conditions {
			if c.Type == v1beta1.ConditionStalled {
				return strings.Contains(c.Message, remedy) && r.Status.Message == c.Message
			}
		}
		return false
	})
	require.NoError(t, hooks.Delete(context.Background(), theirs.Name, metav1.DeleteOptions{}))
	d.waitStep(1)
}
