package chart

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/kruise/definition"
	"slipway.io/slipway/test/harness"
)

// gateOf returns the configuration of the gate's webhooks among rendered objects; nil if there is none.
func gateOf(t testing.TB, objects []*unstructured.Unstructured) *admission.MutatingWebhookConfiguration {
	t.Helper()
	return webhooksOf(t, objects, false)
}

// webhooksOf returns the configuration of the gate's webhooks, or of the one that checks authors; nil if there is none.
func webhooksOf(t testing.TB, objects []*unstructured.Unstructured,
	authors bool) *admission.MutatingWebhookConfiguration {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() != "MutatingWebhookConfiguration" {
			continue
		}
		found := &admission.MutatingWebhookConfiguration{}
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, found))
		if guard.ChecksAuthors(found) == authors {
			return found
		}
	}
	return nil
}

// older are the arguments for a cluster without mutating admission policies.
var older = []string{"--kube-version", "1.33.0", "--set", "rollouts.enabled=true,watchNamespaces={shop,bank}"}

// TestChartGate_EqualsGateOfCommand checks that the chart's webhooks equal those of `slipway guard install` for the
// accounts of the release, and are called for the watched namespaces only.
func TestChartGate_EqualsGateOfCommand(t *testing.T) {
	t.Parallel()
	objects := render(t, append(slices.Clone(older), "--set", "guard.install=true,guard.identities={anna},"+
		"guard.namespaceSelector.matchLabels.team=shop,rollouts.gate=webhook")...)
	options := guard.Options{Identities: []string{"anna", "system:serviceaccount:slipway:slipway"}}
	at := func(path string) admission.WebhookClientConfig {
		return admission.WebhookClientConfig{Service: &admission.ServiceReference{Namespace: "slipway",
			Name: "slipway-webhook", Path: &path, Port: new(int32(443))}}
	}
	options.Name = guard.GateOf("slipway")
	requireWebhooks(t, webhooksOf(t, objects, false), guard.Webhooks(options, at("/mutate")))
	options.Name = guard.AuthorsOf("slipway")
	requireWebhooks(t, webhooksOf(t, objects, true), guard.AuthorWebhooks(options, at("/authors")))
}

func requireWebhooks(t *testing.T, have, want *admission.MutatingWebhookConfiguration) {
	t.Helper()
	require.NotNil(t, have)
	for i := range want.Webhooks {
		want.Webhooks[i].ClientConfig.CABundle = have.Webhooks[0].ClientConfig.CABundle
	}
	require.Equal(t, want.Name, have.Name)
	require.Equal(t, want.Annotations, have.Annotations)
	require.Empty(t, guard.WebhookProblems(have, want))
	require.Equal(t, want.Labels[guard.LabelGuard], have.Labels[guard.LabelGuard])
	for n := range want.Webhooks {
		selector := have.Webhooks[n].NamespaceSelector
		require.Equal(t, map[string]string{"team": "shop"}, selector.MatchLabels)
		require.Contains(t, selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: guard.LabelGuard,
			Operator: metav1.LabelSelectorOpDoesNotExist})
		require.Contains(t, selector.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{"shop", "bank"}})
		want.Webhooks[n].NamespaceSelector = selector
	}
	require.Equal(t, asJSON(t, want.Webhooks), asJSON(t, have.Webhooks))
}

// TestChartGate_IsMadeWhereNeeded: where the API server has mutating policies, they hold workloads, and nothing depends
// on a server.
func TestChartGate_IsMadeWhereNeeded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		made bool
		// authors is true if a webhook checks authors, too.
		authors bool
	}{
		"Older": {older, true, false},
		"OlderWithPolicy": {append(slices.Clone(older), "--api-versions",
			"admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy"), false, false},
		"Newer": {append(slices.Clone(older), "--kube-version", "1.36.0"), false, false},
		"ByChoice": {append(slices.Clone(older), "--kube-version", "1.36.0", "--set", "rollouts.gate=webhook"),
			true, true},
		"Off":        {append(slices.Clone(older), "--set", "rollouts.gate=off"), false, false},
		"ByServer":   {append(slices.Clone(older), "--set", "rbac.byServer=true"), false, false},
		"NoRollouts": {[]string{"--kube-version", "1.33.0"}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := render(t, c.args...)
			require.Equal(t, c.authors, webhooksOf(t, objects, true) != nil)
			found := gateOf(t, objects)
			require.Equal(t, c.made, found != nil)
			if found == nil {
				return
			}
			for _, w := range found.Webhooks {
				closed := *w.FailurePolicy == admission.Fail
				marked := w.ObjectSelector != nil && slices.ContainsFunc(w.ObjectSelector.MatchExpressions,
					func(r metav1.LabelSelectorRequirement) bool {
						return r.Key == gate.Label && r.Operator == metav1.LabelSelectorOpExists
					})
				ofRollouts := w.Rules[0].APIGroups[0] == "rollouts.kruise.io"
				require.Equal(t, closed, marked || ofRollouts, "%s: without a server, only what has marks may be "+
					"refused", w.Name)
			}
		})
	}
}

// TestChartCertificate: definition, webhooks and Secret have one CA, which accepts the certificate for the Service;
// a CA of a Secret or of cert-manager takes its place.
func TestChartCertificate(t *testing.T) {
	t.Parallel()
	objects := render(t, older...)
	secret := find(t, objects, "Secret", "slipway-webhook-tls")
	entry := func(name string) string {
		text, err := base64.StdEncoding.DecodeString(secret.Object["data"].(map[string]any)[name].(string))
		require.NoError(t, err)
		return string(text)
	}
	ca, leaf := []byte(entry("ca.crt")), []byte(entry("tls.crt"))
	require.NoError(t, kube.CheckTrust(ca, leaf, "slipway-webhook.slipway.svc"))
	require.Error(t, kube.CheckTrust(ca, leaf, "other.slipway.svc"))
	require.Equal(t, entry("ca.crt"), conversionCA(t, objects))
	require.Equal(t, entry("ca.crt"), string(gateOf(t, objects).Webhooks[0].ClientConfig.CABundle))
	server := find(t, objects, "Deployment", "slipway-server")
	require.NotContains(t, asJSON(t, server.Object), "ca.key", "pods don't get the key of the CA")

	path := values(t, map[string]any{"rollouts": map[string]any{"webhook": map[string]any{"caBundle": "A CA",
		"tlsSecret": map[string]any{"name": "mine"}}}})
	objects = render(t, append(slices.Clone(older), "--values", path)...)
	require.Equal(t, "A CA", conversionCA(t, objects))
	require.Equal(t, "A CA", string(gateOf(t, objects).Webhooks[0].ClientConfig.CABundle))
	require.Contains(t, asJSON(t, find(t, objects, "Deployment", "slipway-server").Object), `"secretName":"mine"`)

	objects = render(t, append(slices.Clone(older), "--set", "rollouts.webhook.certManager.issuerRef.name=us")...)
	certificate := find(t, objects, "Certificate", "slipway-webhook-tls")
	require.Equal(t, map[string]any{"secretName": "slipway-webhook-tls", "issuerRef": map[string]any{"name": "us"},
		"dnsNames": []any{"slipway-webhook.slipway.svc"}}, certificate.Object["spec"])
	require.Empty(t, conversionCA(t, objects), "cert-manager writes it, and an upgrade keeps it")
	require.Empty(t, gateOf(t, objects).Webhooks[0].ClientConfig.CABundle)
	for _, object := range []metav1.Object{gateOf(t, objects), find(t, objects, "CustomResourceDefinition",
		definition.Name)} {
		require.Equal(t, "slipway/slipway-webhook-tls", object.GetAnnotations()["cert-manager.io/inject-ca-from"])
	}
}

// conversionCA returns the CA of the conversion of Rollouts.
func conversionCA(t testing.TB, objects []*unstructured.Unstructured) string {
	t.Helper()
	crd := find(t, objects, "CustomResourceDefinition", definition.Name)
	text, _, err := unstructured.NestedString(crd.Object, "spec", "conversion", "webhook", "clientConfig", "caBundle")
	require.NoError(t, err)
	ca, err := base64.StdEncoding.DecodeString(text)
	require.NoError(t, err)
	return string(ca)
}

// webhookTest is an installation whose webhook of the gate the chart has registered.
type webhookTest struct {
	*installation
	t    *testing.T
	apps string
	port int
}

// TestLongChartWebhooks_RefuseNothingOfOthers installs the chart with the webhook of the gate, upgrades it with another
// certificate and another CA, lets it be without a server, and uninstalls it. At no moment is an edit of an object
// without Slipway's marks refused. Servers have no right to write the configuration, and say what it lacks.
func TestLongChartWebhooks_RefuseNothingOfOthers(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	stack := harness.SharedStack(t)
	stack.InstallRollouts(t)
	w := &webhookTest{t: t, apps: stack.Namespace(t, "apps"), port: number(t, harness.FreePort(t))}
	harness.LabelNamespace(t, stack.Kube, w.apps, guard.LabelGuard, "")
	others := w.editOthers(stack, w.apps, stack.Namespace(t, "others"))
	w.deploy(stack, "marked", map[string]string{gate.Label: "none"})
	home := stack.Namespace(t, "home")
	content := engineValues(stack, stack.TemporalNamespace(t), home, w.apps)
	content["crds"] = map[string]any{"install": false}
	content["rollouts"] = map[string]any{"enabled": true, "gate": "webhook", "webhook": map[string]any{"port": w.port}}
	w.installation = install(t, stack, home, content)
	w.proxyWebhooks(w.port)
	w.routeWebhook()
	w.waitRefused("before the first server is ready")

	workers := w.run("worker", "server")
	w.waitHeld("servers answer")
	w.requireNoRightToWrite()
	before := w.secret()
	w.helm("upgrade", w.release, chartDir(), "--values", values(t, content), "--force-conflicts")
	after := w.secret()
	require.Equal(t, before["ca.crt"], after["ca.crt"], "the CA is kept over upgrades")
	require.NotEqual(t, before["tls.crt"], after["tls.crt"], "each upgrade signs a certificate")
	w.waitHeld("with the certificate of before")
	w.replace("server", w.backends())
	w.waitHeld("with the new certificate")
	w.waitReadiness("")

	w.changeCA(content)
	w.waitRefused("servers have the certificate of another CA")
	w.waitReadiness("it does not trust the certificate of this server")
	w.replace("server", w.backends())
	w.waitHeld("with the certificate of the new CA")

	for _, server := range w.backends() {
		server.Kill()
	}
	w.waitRefused("without a server")
	w.helm("uninstall", w.release)
	require.Eventually(t, func() bool {
		edited, err := w.edit("marked")
		return err == nil && edited.Annotations[gate.AnnotationBy] == ""
	}, harness.Patience, harness.Tick, "an uninstall frees what has marks")
	for _, worker := range workers {
		worker.Kill()
	}
	require.Empty(t, others())
}

// deploy creates a Deployment in the watched namespace.
func (w *webhookTest) deploy(stack harness.Stack, name string, labels map[string]string) {
	w.t.Helper()
	w.create(stack, w.apps, name, labels)
}

func (w *webhookTest) create(stack harness.Stack, namespace, name string, labels map[string]string) {
	w.t.Helper()
	text := `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":1,"selector":{"matchLabels":{"app":"x"}},
		"template":{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"app","image":"app:v1"}]}}}}`
	object := &unstructured.Unstructured{}
	require.NoError(w.t, json.Unmarshal([]byte(text), &object.Object))
	object.SetName(name)
	object.SetLabels(labels)
	_, err := stack.Dynamic(w.t).Resource(harness.Deployment.GVR).Namespace(namespace).Create(context.Background(),
		object, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

// editOthers edits Deployments without marks in these namespaces until the returned function is called, which returns
// the refusals.
func (w *webhookTest) editOthers(stack harness.Stack, namespaces ...string) (end func() []string) {
	for _, namespace := range namespaces {
		w.create(stack, namespace, "free", nil)
	}
	var mu sync.Mutex
	var refused []string
	edits, done, stopped := 0, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for ; ; edits++ {
			for _, namespace := range namespaces {
				patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"n":"%d"}}}}}`, edits)
				_, err := stack.Kube.AppsV1().Deployments(namespace).Patch(context.Background(), "free",
					types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
				if err != nil {
					mu.Lock()
					refused = append(refused, namespace+": "+err.Error())
					mu.Unlock()
				}
			}
			select {
			case <-done:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return func() []string {
		close(done)
		<-stopped
		assert.Greater(w.t, edits, 50)
		return refused
	}
}

// routeWebhook lets the API server reach the webhook through the chart's Service, which gets the name of this machine.
func (w *webhookTest) routeWebhook() {
	w.t.Helper()
	patch := `{"spec":{"type":"ExternalName","externalName":"localhost","clusterIP":null,"clusterIPs":null}}`
	_, err := w.stack.Kube.CoreV1().Services(w.namespace).Patch(context.Background(), w.release+"-webhook",
		types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(w.t, err)
}

// edited is what an edit makes of a Deployment.
type edited struct{ metav1.ObjectMeta }

// edit changes the image of a Deployment, without storing it.
func (w *webhookTest) edit(name string) (edited, error) {
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":%q}]}}}}`,
		harness.NewImage(name))
	d, err := w.stack.Kube.AppsV1().Deployments(w.apps).Patch(context.Background(), name,
		types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return edited{}, err
	}
	return edited{d.ObjectMeta}, nil
}

func (w *webhookTest) waitHeld(why string) {
	w.t.Helper()
	var last error
	require.Eventually(w.t, func() bool {
		e, err := w.edit("marked")
		last = err
		return err == nil && e.Annotations[gate.AnnotationBy] != ""
	}, harness.Patience, harness.Tick, "%s: an edit of a marked workload isn't held: %v", why, &last)
}

func (w *webhookTest) waitRefused(why string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		_, err := w.edit("marked")
		return apierrors.IsInternalError(err)
	}, harness.Patience, harness.Tick, "%s: an edit of a marked workload passes without a hold", why)
}

func (w *webhookTest) secret() map[string][]byte {
	w.t.Helper()
	found, err := w.stack.Kube.CoreV1().Secrets(w.namespace).Get(context.Background(), w.release+"-webhook-tls",
		metav1.GetOptions{})
	require.NoError(w.t, err)
	return found.Data
}

// requireNoRightToWrite requires that the servers' account may not write what the API server calls.
func (w *webhookTest) requireNoRightToWrite() {
	w.t.Helper()
	account := w.account(w.t, "server")
	for _, verb := range []string{"create", "update", "patch", "delete"} {
		for _, resource := range []string{"admissionregistration.k8s.io/mutatingwebhookconfigurations",
			"admissionregistration.k8s.io/mutatingadmissionpolicies", "apiextensions.k8s.io/customresourcedefinitions",
			"apps/deployments", "secrets"} {
			require.False(w.t, account.May(w.t, verb, resource, w.apps), "%s %s", verb, resource)
		}
	}
}

// changeCA upgrades the release with a certificate of another CA, in a Secret of the administrator's.
func (w *webhookTest) changeCA(content map[string]any) {
	w.t.Helper()
	other := find(w.t, objectsOf(w.t, mustHelm(w.t, "template", w.release, chartDir(), "--namespace", w.namespace,
		"--values", values(w.t, content))), "Secret", w.release+"-webhook-tls")
	data := map[string][]byte{}
	for name, text := range other.Object["data"].(map[string]any) {
		decoded, err := base64.StdEncoding.DecodeString(text.(string))
		require.NoError(w.t, err)
		data[name] = decoded
	}
	delete(data, "ca.key")
	_, err := w.stack.Kube.CoreV1().Secrets(w.namespace).Create(context.Background(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Data: data}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	content["rollouts"].(map[string]any)["webhook"].(map[string]any)["tlsSecret"] = map[string]any{"name": "mine"}
	w.helm("upgrade", w.release, chartDir(), "--values", values(w.t, content), "--force-conflicts")
}

// waitReadiness waits until /readyz says that about the configuration; "" for nothing. The server is ready in any case.
func (w *webhookTest) waitReadiness(problem string) {
	w.t.Helper()
	var body struct {
		Ready  bool
		Checks []struct{ Name, Message string }
	}
	object := "MutatingWebhookConfiguration " + guard.GateOf(w.namespace)
	require.Eventually(w.t, func() bool {
		request, err := http.NewRequest(http.MethodGet, "http://"+w.backends()[0].address+"/readyz", nil)
		require.NoError(w.t, err)
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		if json.NewDecoder(response.Body).Decode(&body) != nil || !body.Ready {
			return false
		}
		for _, check := range body.Checks {
			if check.Name == "admission" {
				return problem == "" && !strings.Contains(check.Message, object) ||
					problem != "" && strings.Contains(check.Message, object) && strings.Contains(check.Message, problem)
			}
		}
		return false
	}, 2*harness.Patience, harness.Tick, "/readyz doesn't say %q: %v", problem, &body)
}
