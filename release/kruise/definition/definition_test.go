package definition_test

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/release/kruise/definition"
	"slipway.io/slipway/release/kruise/v1alpha1"
	"slipway.io/slipway/release/kruise/v1beta1"
)

const file = "../../../deploy/crds/rollouts.kruise.io_rollouts.yaml"

func written(t *testing.T) (text []byte, crd apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(text, &crd))
	return text, crd
}

// After a change of a rule, generate the definition again. Completing it twice changes nothing.
func TestDefinitionFileIsCurrent(t *testing.T) {
	t.Parallel()
	text, _ := written(t)
	again, err := definition.Complete(text)
	require.NoError(t, err)
	require.Equal(t, string(text), string(again), "run go generate in release/kruise/definition")
}

// kubectl explain has a text for every field.
func TestEveryFieldIsDescribed(t *testing.T) {
	t.Parallel()
	_, crd := written(t)
	require.Len(t, crd.Spec.Versions, 2)
	require.Equal(t, definition.Name, crd.Name)
	for _, version := range crd.Spec.Versions {
		root := version.Schema.OpenAPIV3Schema
		for _, part := range []string{"spec", "status"} {
			requireDescribed(t, version.Name+" "+part, root.Properties[part])
		}
	}
}

func requireDescribed(t *testing.T, path string, schema apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	require.NotEmpty(t, schema.Description, path)
	for name, field := range schema.Properties {
		requireDescribed(t, path+"."+name, field)
	}
	if schema.Items != nil {
		for name, field := range schema.Items.Schema.Properties {
			requireDescribed(t, fmt.Sprintf("%s[].%s", path, name), field)
		}
	}
}

// A field that the schema lacks would be dropped from every object: after adding one to the types, generate the
// definition again.
func TestSchema_HasEveryFieldOfTypes(t *testing.T) {
	t.Parallel()
	_, crd := written(t)
	types := map[string]reflect.Type{"v1beta1": reflect.TypeFor[v1beta1.Rollout](),
		"v1alpha1": reflect.TypeFor[v1alpha1.Rollout]()}
	for _, version := range crd.Spec.Versions {
		for _, part := range []string{"Spec", "Status"} {
			field, _ := types[version.Name].FieldByName(part)
			requireFields(t, version.Name+"."+part, field.Type,
				version.Schema.OpenAPIV3Schema.Properties[strings.ToLower(part)])
		}
	}
}

func requireFields(t *testing.T, path string, of reflect.Type, schema apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		if of.Kind() == reflect.Slice {
			require.NotNil(t, schema.Items, path)
			schema = *schema.Items.Schema
		}
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || !strings.HasPrefix(of.PkgPath(), "slipway.io/") {
		return
	}
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous {
			requireFields(t, path, field.Type, schema)
			continue
		}
		require.Contains(t, schema.Properties, name, path)
		requireFields(t, path+"."+name, field.Type, schema.Properties[name])
	}
}

// Without a conversion webhook, an object of v1alpha1 would be stored without its workload. v1alpha1 is served only
// once there is one.
func TestOnlyStoredVersionIsServed_ByDefault(t *testing.T) {
	t.Parallel()
	_, crd := written(t)
	for _, version := range crd.Spec.Versions {
		require.Equal(t, version.Name == "v1beta1", version.Served, version.Name)
		require.Equal(t, version.Name == "v1beta1", version.Storage, version.Name)
	}
}

func TestComplete_Fails_ForIncompleteDefinition(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"NoYAML":     "{",
		"NoVersions": "metadata: {}\nspec: {}",
		"NoSchema":   "metadata: {}\nspec: {versions: [{name: v1beta1}]}",
	} {
		_, err := definition.Complete([]byte(text))
		require.Error(t, err, name)
	}
}
