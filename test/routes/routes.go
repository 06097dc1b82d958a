// Package routes installs the kinds of routing objects that a bare Kubernetes lacks on the local stack: HTTPRoute of
// the Gateway API, from the module of its release, and stand-ins for Istio's VirtualService and DestinationRule and for
// two kinds that no built-in script knows, which accept any fields.
package routes

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/test/definitions"
)

// Install makes the API server serve HTTPRoutes, the two kinds of Istio, and an HTTPProxy and an ApisixRoute.
func Install(t testing.TB, config *rest.Config) {
	t.Helper()
	definitions.Install(t, config, "routes", func(t testing.TB) []*apiextensionsv1.CustomResourceDefinition {
		t.Helper()
		return []*apiextensionsv1.CustomResourceDefinition{httpRoute(t),
			anything(istio, "v1", "VirtualService", "virtualservices"),
			anything(istio, "v1", "DestinationRule", "destinationrules"),
			anything("projectcontour.io", "v1", "HTTPProxy", "httpproxies"),
			anything("apisix.apache.org", "v2", "ApisixRoute", "apisixroutes")}
	})
}

// InstallV1Beta1Only makes the API server serve HTTPRoutes in v1beta1 only, as older clusters do. It is for private
// stacks.
func InstallV1Beta1Only(t testing.TB, config *rest.Config) {
	t.Helper()
	definitions.Install(t, config, "routes v1beta1", func(t testing.TB) []*apiextensionsv1.CustomResourceDefinition {
		t.Helper()
		crd := httpRoute(t)
		crd.Spec.Versions = slices.DeleteFunc(crd.Spec.Versions,
			func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name != "v1beta1" })
		crd.Spec.Versions[0].Storage = true
		return []*apiextensionsv1.CustomResourceDefinition{crd}
	})
}

// httpRoute returns the definition in the Gateway API release of go.mod.
func httpRoute(t testing.TB) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	require.NoError(t, err)
	file := filepath.Join(strings.TrimSpace(string(out)), "config", "crd", "standard",
		gatewayv1.GroupName+"_httproutes.yaml")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	var crd apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.Unmarshal(raw, &crd))
	return &crd
}

// istio is the group of Istio's routes.
const istio = "networking.istio.io"

// anything returns a definition that keeps every field.
func anything(group, version, kind, plural string) *apiextensionsv1.CustomResourceDefinition {
	keep := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural,
				Singular: strings.ToLower(kind)},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &keep,
				}},
			}},
		},
	}
}
