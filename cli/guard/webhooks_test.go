package guard

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/kruise/definition"
	"slipway.io/slipway/release/strictyaml"
)

// writeCA writes a CA and returns its path.
func writeCA(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, NotAfter: time.Now().Add(time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o600))
	return file
}

func TestWebhookOptions_AreCompleteOrRefused(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(broken, []byte("no certificate"), 0o600))
	none, err := webhookOptions{}.read()
	require.NoError(t, err)
	require.Nil(t, none, "no webhook is asked for")
	for says, o := range map[string]webhookOptions{
		"set --webhook-ca-file":                 {service: "slipway/slipway-webhook"},
		"either --webhook-service or":           {caFile: broken},
		"set either --webhook-service or --web": {service: "a/b", url: "https://a", caFile: broken},
		"has no certificate in PEM form":        {service: "slipway/slipway-webhook", caFile: broken},
		"no such file":                          {url: "https://a", caFile: broken + "x"},
	} {
		_, err := o.read()
		require.ErrorContains(t, err, says)
	}
	_, err = webhookOptions{gate: true}.read()
	require.ErrorContains(t, err, "either --webhook-service or", "a gate needs an address")
}

// What an administrator prints and applies is whole: the definition with its conversion, the policies, and the webhook
// of the gate where it is wanted.
func TestDryRun_PrintsEverything(t *testing.T) {
	t.Parallel()
	file := writeCA(t)
	for _, gate := range []bool{false, true} {
		hooks, err := webhookOptions{service: "engine/webhooks:8443", caFile: file, engineNamespace: "engine",
			gate: gate}.read()
		require.NoError(t, err)
		var out bytes.Buffer
		require.NoError(t, printAll(&app.App{Out: &out}, guard.Options{}, hooks))
		kinds := map[string]*unstructured.Unstructured{}
		count := 0
		for _, document := range strictyaml.Split(out.Bytes()) {
			object := &unstructured.Unstructured{}
			require.NoError(t, yaml.Unmarshal(document, &object.Object))
			kinds[object.GetKind()+" "+object.GetName()] = object
			count++
		}
		crd := kinds["CustomResourceDefinition "+definition.Name]
		require.NotNil(t, crd)
		require.True(t, definition.IsOurs(crd.GetLabels()))
		config, _, err := unstructured.NestedMap(crd.Object, "spec", "conversion", "webhook", "clientConfig")
		require.NoError(t, err)
		require.EqualValues(t, map[string]any{"namespace": "engine", "name": "webhooks", "port": 8443.0,
			"path": "/convert"}, config["service"])
		require.NotEmpty(t, config["caBundle"])
		versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
		require.NoError(t, err)
		for _, v := range versions {
			require.Equal(t, true, v.(map[string]any)["served"])
		}
		require.Equal(t, gate, kinds["MutatingWebhookConfiguration slipway-gate-engine"] != nil)
		require.Equal(t, gate, kinds["MutatingWebhookConfiguration slipway-authors-engine"] != nil)
		policies := len(guard.Policies(guard.Options{}, "v1", "v1"))
		require.GreaterOrEqual(t, count, policies+1, "the policies too")
	}
}
