package chart

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/test/programs"
)

// helm returns the path of the program.
func helm(t testing.TB) string {
	t.Helper()
	return filepath.Join(programs.Folder(t, "helm"), "helm")
}

// chartDir returns the chart's folder in the repository.
func chartDir() string { return filepath.Join(os.Getenv("SLIPWAY_TEST_ROOT"), "deploy/helm/slipway") }

// tryHelm runs helm with its own folders and without the environment's cluster.
func tryHelm(t testing.TB, args ...string) (out, errors string, err error) {
	t.Helper()
	home := t.TempDir()
	command := exec.Command(helm(t), args...)
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "HELM_") && !strings.HasPrefix(variable, "KUBE") {
			command.Env = append(command.Env, variable)
		}
	}
	command.Env = append(command.Env, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home,
		"KUBECONFIG="+filepath.Join(home, "none"))
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err = command.Run()
	return stdout.String(), stderr.String(), err
}

// mustHelm returns the output of a helm command, which must succeed.
func mustHelm(t testing.TB, args ...string) string {
	t.Helper()
	out, errors, err := tryHelm(t, args...)
	require.NoError(t, err, "helm %v: %s", args, errors)
	return out
}

// render renders the chart without a cluster.
func render(t testing.TB, args ...string) []*unstructured.Unstructured {
	t.Helper()
	return objectsOf(t, mustHelm(t, append([]string{"template", "slipway", chartDir(), "--namespace", "slipway"},
		args...)...))
}

// objectsOf returns the objects of a manifest.
func objectsOf(t testing.TB, manifest string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for _, document := range strictyaml.Split([]byte(manifest)) {
		object := &unstructured.Unstructured{}
		text, err := yaml.YAMLToJSONStrict(document)
		require.NoError(t, err, "%s", document)
		if string(text) != "null" {
			require.NoError(t, object.UnmarshalJSON(text), "%s", document) // decodes numbers like API clients
			objects = append(objects, object)
		}
	}
	return objects
}

// find returns the only object of that kind and name.
func find(t testing.TB, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	var found []*unstructured.Unstructured
	for _, object := range objects {
		if object.GetKind() == kind && object.GetName() == name {
			found = append(found, object)
		}
	}
	require.Len(t, found, 1, "%s %s", kind, name)
	return found[0]
}

// values writes a file of values and returns its path.
func values(t testing.TB, content map[string]any) string {
	t.Helper()
	text, err := yaml.Marshal(content)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

// allOptions returns values with every option of an engine.
func allOptions(t testing.TB) map[string]any {
	t.Helper()
	text, err := os.ReadFile("testdata/everything.yaml")
	require.NoError(t, err)
	var content map[string]any
	require.NoError(t, yaml.Unmarshal(text, &content))
	return content
}
