package rollouts_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admission "k8s.io/api/admissionregistration/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"slipway.io/slipway/api/webhook"
	"slipway.io/slipway/release/kruise/definition"
	"slipway.io/slipway/release/kruise/v1alpha1"
	"slipway.io/slipway/store"
	"slipway.io/slipway/test/harness"
)

// converter is the conversion webhook of this package; a definition has only one webhook address. undo stops serving
// v1alpha1 at the end.
var converter struct {
	sync.Mutex
	server *webhook.Server
	undo   func()
}

func TestMain(m *testing.M) {
	harness.Main(m, func() {
		if converter.server != nil {
			_ = converter.server.Stop(context.Background())
		}
		if converter.undo != nil {
			converter.undo()
		}
	})
}

// startConverting starts the conversion webhook if needed and waits until v1alpha1 is converted. It returns a client
// for v1alpha1.
func (c cluster) startConverting(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	converter.Lock()
	defer converter.Unlock()
	if converter.server == nil {
		converter.undo = func() {
			c.stopServingAlpha()
			_ = c.Kube.CoreV1().Secrets("default").Delete(context.Background(), "slipway-webhook",
				metav1.DeleteOptions{})
		}
		address := net.JoinHostPort("127.0.0.1", harness.FreePort(t))
		home, err := store.New(c.REST, "default", "default")
		require.NoError(t, err)
		local, _ := webhook.LocalAddress(address)
		converter.server = webhook.NewServer(webhook.Options{Listen: address, Address: local,
			Source:    webhook.SelfSigned{Secrets: home, Now: time.Now},
			Endpoints: []webhook.Endpoint{webhook.NewConversion(home)},
			Log:       slog.New(slog.NewTextHandler(os.Stderr, nil))})
		require.NoError(t, converter.server.Start(context.Background()))
	}
	require.Eventually(t, func() bool {
		return c.tryAlpha() == nil
	}, harness.Patience, harness.Tick, "v1alpha1 is not converted")
	return c.alpha()
}

// stopConverting stops the webhook that an earlier test may have started.
func stopConverting(t *testing.T) {
	t.Helper()
	converter.Lock()
	defer converter.Unlock()
	if converter.server != nil {
		require.NoError(t, converter.server.Stop(testContext(t)))
		converter.server = nil
	}
}

func (c cluster) alpha() dynamic.ResourceInterface {
	return c.objects.Resource(v1alpha1.Resource).Namespace(c.namespace)
}

const headAlpha = "apiVersion: rollouts.kruise.io/v1alpha1\nkind: Rollout\n"

// tryAlpha creates an object of v1alpha1 as a dry run.
func (c cluster) tryAlpha() error {
	u, err := parse(headAlpha + "metadata: {name: try}\nspec: {objectRef: {workloadRef: {apiVersion: apps/v1, kind: " +
		"Deployment, name: none}}, strategy: {canary: {steps: [{replicas: 1}]}}}")
	if err != nil {
		return err
	}
	u.SetNamespace(c.namespace)
	_, err = c.alpha().Create(context.Background(), u, dryRun)
	return err
}

// stopServingAlpha sets the definition to the state without a conversion webhook.
func (c cluster) stopServingAlpha() {
	client, err := apiextensions.NewForConfig(c.REST)
	if err != nil {
		return
	}
	crd, err := client.CustomResourceDefinitions().Get(context.Background(), definition.Name, metav1.GetOptions{})
	if err != nil {
		return
	}
	for i, version := range crd.Spec.Versions {
		if version.Name == v1alpha1.GroupVersion.Version {
			patch := fmt.Sprintf(
				`[{"op":"replace","path":"/spec/versions/%d/served","value":false},{"op":"replace","path":"/spec/conversion","value":{"strategy":"None"}}]`, i)
			_, _ = client.CustomResourceDefinitions().Patch(context.Background(), definition.Name, types.JSONPatchType,
				[]byte(patch), metav1.PatchOptions{})
		}
	}
}

// A running server replaces the address of a dead conversion webhook in the definition; until then v1beta1 keeps
// working.
func TestDeadConversionWebhook_IsReplaced(t *testing.T) {
	c := newCluster(t)
	stopConverting(t)
	home, err := store.New(c.REST, c.namespace, c.namespace)
	require.NoError(t, err)
	dead := admission.WebhookClientConfig{URL: new("https://127.0.0.1:1/convert"), CABundle: nil}
	_, err = home.PublishConversion(testContext(t), dead)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		err := c.tryAlpha()
		return err != nil && strings.Contains(err.Error(), "conversion webhook")
	}, harness.Patience, harness.Tick, "v1alpha1 is served, and fails")
	stored, err := c.beta().Create(testContext(t), c.example(t, "canary-v1beta1"), metav1.CreateOptions{})
	require.NoError(t, err, "objects can be created")
	c.setStatus(t, stored, `{"status":{"phase":"Healthy"}}`)
	list, err := c.beta().List(testContext(t), metav1.ListOptions{})
	require.NoError(t, err, "objects can be listed")
	require.Len(t, list.Items, 1)
	_, err = c.beta().Create(testContext(t), c.parse(t, beta("[{replicas: 0}]", "[]")), dryRun)
	require.ErrorContains(t, err, "replicas must be a number above 0", "invalid objects are refused")
	require.NoError(t, home.EnsureCRDs(testContext(t)), "a server that starts applies the definition again")

	requireEngineConverts(t, c, stored.GetName())
	alpha := c.startConverting(t)
	read, err := alpha.Get(testContext(t), stored.GetName(), metav1.GetOptions{})
	require.NoError(t, err)
	require.Contains(t, read.Object["spec"], "objectRef")

	require.NoError(t, home.EnsureCRDs(testContext(t)), "the definition keeps the address and serves v1alpha1")
	again, err := home.PublishConversion(testContext(t), dead)
	require.NoError(t, err)
	require.NotZero(t, again, "another server does not replace a working webhook, and checks again later")
	require.NoError(t, c.tryAlpha())

	c.stopServingAlpha() // the same effect as applying the file of the definition
	definitions, err := apiextensions.NewForConfig(c.REST)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		crd, err := definitions.CustomResourceDefinitions().Get(context.Background(), definition.Name,
			metav1.GetOptions{})
		return err == nil && crd.Spec.Conversion.Webhook != nil
	}, harness.Patience, harness.Tick, "the server writes its address again")
	c.startConverting(t)
}

// requireEngineConverts starts an engine with the permissions of deploy/rbac, requires that it becomes the conversion
// webhook, and kills it.
func requireEngineConverts(t *testing.T, c cluster, name string) {
	t.Helper()
	address := net.JoinHostPort("127.0.0.1", harness.FreePort(t))
	e := harness.Start(t, harness.Options{Args: []string{"--webhook-listen", address},
		Kubeconfig: func(e *harness.Engine) string { return e.EngineAccount(t, e.Home, e.Apps).Kubeconfig }})
	require.Eventually(t, func() bool {
		_, err := c.alpha().Get(context.Background(), name, metav1.GetOptions{})
		return err == nil
	}, harness.Patience, harness.Tick, "the engine becomes the webhook")
	secret, err := e.Kube.CoreV1().Secrets(e.Home).Get(testContext(t), "slipway-webhook", metav1.GetOptions{})
	require.NoError(t, err)
	client, err := apiextensions.NewForConfig(c.REST)
	require.NoError(t, err)
	crd, err := client.CustomResourceDefinitions().Get(testContext(t), definition.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "https://"+address+"/convert", *crd.Spec.Conversion.Webhook.ClientConfig.URL)
	require.Equal(t, string(secret.Data["ca.crt"]), string(crd.Spec.Conversion.Webhook.ClientConfig.CABundle))
	require.NotContains(t, e.Processes[0].Output(), "can't be installed", "the permissions are enough for the policies")
	require.NotContains(t, e.Processes[0].Output(), "may not reach the webhooks",
		"and for the certificate and the definition")
	e.Processes[0].Kill()
	_, err = c.alpha().Get(testContext(t), name, metav1.GetOptions{})
	require.ErrorContains(t, err, "conversion webhook", "the webhook is dead again")
}
