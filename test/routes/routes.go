// Package routes gives the local stack the kinds of objects that route requests and that a bare Kubernetes does not have: HTTPRoute of the Gateway API, from the
// module of its release, and look-alikes of Istio's VirtualService and DestinationRule, which keep whatever is written into them.
package routes

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"
)

// Install sees to the custom resource definitions, and waits until they are served. They stay when the test is over.
func Install(t testing.TB, config *rest.Config) {
	t.Helper()
	client, err := clientset.NewForConfig(config)
	require.NoError(t, err)
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	for _, crd := range []*apiextensionsv1.CustomResourceDefinition{httpRoute(t), istio("VirtualService", "virtualservices"), istio("DestinationRule", "destinationrules")} {
		if _, err := crds.Create(context.Background(), crd, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			require.NoError(t, err, crd.Name)
		}
		require.Eventually(t, func() bool {
			now, err := crds.Get(context.Background(), crd.Name, metav1.GetOptions{})
			return err == nil && established(now)
		}, time.Minute, 50*time.Millisecond, "%s is never served", crd.Name)
	}
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.Established {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

// httpRoute is the definition that comes with the release of the Gateway API that go.mod names.
func httpRoute(t testing.TB) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	require.NoError(t, err)
	file := filepath.Join(strings.TrimSpace(string(out)), "config", "crd", "standard", gatewayv1.GroupName+"_httproutes.yaml")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	var crd apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.Unmarshal(raw, &crd))
	return &crd
}

// istio is a definition that keeps every field.
func istio(kind, plural string) *apiextensionsv1.CustomResourceDefinition {
	keep := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + ".networking.istio.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "networking.istio.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural, Singular: strings.ToLower(kind)},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &keep,
				}},
			}},
		},
	}
}
