package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/kruise/v1alpha1"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/test/harness"
)

// An administrator registers the webhooks of a server that may not write them: the server says what is missing, then
// its webhook holds workloads and converts Rollouts; with another CA, server and command say what is wrong; `guard
// remove` removes the webhook.
func TestLongGuardInstall_RegistersWebhooksOfServers(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	p := harness.NewPrivateStack(t) // a definition has one conversion
	ca := harness.NewAuthority(t)
	certificate, key := ca.Issue()
	address := net.JoinHostPort("127.0.0.1", harness.FreePort(t))
	e := harness.Start(t, harness.Options{Stack: &p.Stack, Kubeconfig: func(e *harness.Engine) string {
		return e.KubeconfigAs(t, harness.EngineUser)
	}, Args: []string{"--webhook-listen", address, "--webhook-cert-file", certificate, "--webhook-key-file", key,
		"--register-webhooks=false", "--gate", "webhook"}})
	harness.LabelNamespace(t, p.Kube, e.Apps, guard.LabelGuard, "") // a default installation covers it
	w := describeGated(t, e, harness.Deployment)
	w.name = "web"
	name := "MutatingWebhookConfiguration " + guard.GateOf(e.Home)
	w.waitReadyText("the " + name + " is missing")

	install := func(authority *harness.Authority) string {
		code, out := runGuardCommand(t, p.Stack, p.Kubeconfig, "install", "--webhook-url", "https://"+address,
			"--webhook-ca-file", authority.File, "--webhook-gate", "--engine-namespace", e.Home, "--engine-identity",
			harness.EngineUser)
		require.Equal(t, 0, code, "%s", out)
		return out
	}
	out := install(ca)
	require.Contains(t, out, "Rollouts of v1alpha1 are converted by https://"+address)
	require.Contains(t, out, "The gate's webhook "+guard.GateOf(e.Home)+" is installed")
	_, out = runGuardCommand(t, p.Stack, p.Kubeconfig, "status")
	require.Regexp(t, `webhook +`+guard.GateOf(e.Home)+`, by https://`+address+`\S*, CA valid until \S+: complete`, out)
	w.removePolicies()
	w.Subject(w.kind, w.name, nil)
	w.createRollout(w.name)
	w.waitInForce()
	held := w.edit(anna, w.image("v2"))
	require.Equal(t, w.hold.Value, valueAt(held, w.hold.Pointer), "the webhook holds it")
	require.Equal(t, heldValues[w.kind].original, held.GetAnnotations()[gate.AnnotationHeld])
	require.Equal(t, anna, held.GetAnnotations()[gate.AnnotationBy])
	alpha, err := e.Dynamic(t).Resource(v1beta1.Resource.GroupResource().WithVersion(v1alpha1.GroupVersion.Version)).
		Namespace(e.Apps).Get(context.Background(), w.name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, w.name, valueAt(alpha, "/spec/objectRef/workloadRef/name"), "Rollouts are converted")

	install(harness.NewAuthority(t))
	w.waitReadyText("it does not trust the certificate of this server")
	code, out := runGuardCommand(t, p.Stack, p.Kubeconfig, "remove", "--engine-namespace", e.Home)
	require.Equal(t, 0, code, "%s", out)
	require.Contains(t, out, "The webhook "+guard.GateOf(e.Home)+" was removed")
	require.Contains(t, out, "The webhook "+guard.AuthorsOf(e.Home)+" was removed")
	left, err := p.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations().List(context.Background(),
		metav1.ListOptions{LabelSelector: guard.LabelGuard})
	require.NoError(t, err)
	require.Empty(t, left.Items, "a webhook without a server would refuse edits")
}

// removePolicies removes the bindings of the guard's mutating policies, so that only the webhook holds workloads.
func (w *gated) removePolicies() {
	w.t.Helper()
	require.NoError(w.t, w.Kube.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().DeleteCollection(
		context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: guard.LabelGuard}))
}

// waitReadyText waits until the server is ready, and its readiness has this text.
func (w *gated) waitReadyText(text string) {
	w.t.Helper()
	var body []byte
	require.Eventually(w.t, func() bool {
		response, err := http.Get(w.URL + "/readyz")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		body, err = io.ReadAll(response.Body)
		return err == nil && response.StatusCode == http.StatusOK && strings.Contains(string(body), text)
	}, harness.Patience, harness.Tick, "the readiness does not say %q: %s", text, body)
}
