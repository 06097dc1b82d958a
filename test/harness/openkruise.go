package harness

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/test/definitions"
	"slipway.io/slipway/test/programs"
)

// openKruiseNamespace is the namespace of OpenKruise's manager.
const openKruiseNamespace = "kruise-system"

// StartOpenKruise starts OpenKruise's own manager, with its definitions, and with its webhooks for CloneSets, Advanced
// StatefulSets and Advanced DaemonSets. All three are for the whole cluster, so that only a private stack can have them.
func (p *PrivateStack) StartOpenKruise() {
	t := p.t
	t.Helper()
	program := filepath.Join(programs.Folder(t, "kruise"), "kruise-manager")
	source := programs.Source(t, "kruise", "github.com/openkruise/kruise")
	definitions.Install(t, p.REST, "openkruise", func(t testing.TB) []*apiextensionsv1.CustomResourceDefinition {
		t.Helper()
		return openKruiseDefinitions(t, filepath.Join(source, "config/crd"))
	})
	ensureNamespace(t, p.Kube, openKruiseNamespace)
	p.registerOpenKruiseWebhooks(t, filepath.Join(source, "config/webhook/manifests.yaml"))
	health := freeAddress(t)
	manager := Run(t, program, []string{"--kubeconfig=" + p.Kubeconfig, "--health-probe-addr=" + health,
		"--metrics-addr=" + freeAddress(t), "--enable-pprof=false", "--enable-leader-election=false",
		"--rest-config-qps=200", "--rest-config-burst=400",
		"--feature-gates=KruiseDaemon=false,DaemonWatchingPod=false"}, // nodes of the stack have no daemon of OpenKruise
		[]string{"POD_NAMESPACE=" + openKruiseNamespace, "POD_NAME=manager", "POD_IP=127.0.0.1", "WEBHOOK_HOST=127.0.0.1",
			"WEBHOOK_PORT=" + FreePort(t), "WEBHOOK_CERT_DIR=" + t.TempDir()})
	require.Eventually(t, func() bool {
		require.False(t, manager.Ended(), "OpenKruise's manager has ended")
		response, err := http.Get("http://" + health + "/readyz")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, Patience, Tick, "OpenKruise's manager did not become ready")
	p.OpenKruise = true
}

// openKruiseDefinitions reads all definitions of OpenKruise: its manager looks for each that is missing for 15 seconds
// before it starts. Advanced StatefulSets have a webhook that converts them; the manager completes it.
func openKruiseDefinitions(t testing.TB, folder string) (all []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "bases/*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files, "%s has no definitions", folder)
	converted := readDefinition(t, filepath.Join(folder, "patches/webhook_in_statefulsets.yaml"))
	for _, file := range files {
		crd := readDefinition(t, file)
		if crd.Name == converted.Name {
			crd.Spec.Conversion = converted.Spec.Conversion
		}
		all = append(all, crd)
	}
	return all
}

func readDefinition(t testing.TB, file string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.Unmarshal(raw, crd), file)
	return crd
}

// registerOpenKruiseWebhooks creates the configurations of the webhooks for the three kinds. The manager completes them
// with its address and its certificate.
func (s Stack) registerOpenKruiseWebhooks(t testing.TB, file string) {
	t.Helper()
	manifests, err := os.Open(file)
	require.NoError(t, err)
	defer manifests.Close()
	decoder := utilyaml.NewYAMLOrJSONDecoder(manifests, 4096)
	var mutating admissionv1.MutatingWebhookConfiguration
	var validating admissionv1.ValidatingWebhookConfiguration
	require.NoError(t, decoder.Decode(&mutating))
	require.NoError(t, decoder.Decode(&validating))
	mutating.Name, validating.Name = "kruise-"+mutating.Name, "kruise-"+validating.Name // as its kustomization does
	mutating.Webhooks = slices.DeleteFunc(mutating.Webhooks, func(w admissionv1.MutatingWebhook) bool {
		return !ofThreeKinds(w.ClientConfig)
	})
	validating.Webhooks = slices.DeleteFunc(validating.Webhooks, func(w admissionv1.ValidatingWebhook) bool {
		return !ofThreeKinds(w.ClientConfig)
	})
	require.Len(t, mutating.Webhooks, 3, "one webhook for each kind")
	require.Len(t, validating.Webhooks, 3, "one webhook for each kind")
	client, ctx := s.Kube.AdmissionregistrationV1(), context.Background()
	_, err = client.MutatingWebhookConfigurations().Create(ctx, &mutating, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.ValidatingWebhookConfigurations().Create(ctx, &validating, metav1.CreateOptions{})
	require.NoError(t, err)
}

// ofThreeKinds reports whether a webhook is for one of the three kinds that Slipway releases.
func ofThreeKinds(c admissionv1.WebhookClientConfig) bool {
	return slices.ContainsFunc([]string{"v1alpha1-cloneset", "v1alpha1-daemonset", "apps-kruise-io-statefulset"},
		func(kind string) bool { return strings.HasSuffix(*c.Service.Path, kind) })
}
