package serving_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

var update = flag.Bool("update", false, "overwrite the golden files with the rendered objects")

// decode strictly decodes a document of the home cluster.
func decode(t require.TestingT, file string, into any) {
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(raw, into), file)
}

// version returns the version of the serving and AppImage documents in a folder.
func version(t require.TestingT, folder string) serving.Version {
	var kd kuscia.KusciaDeployment
	decode(t, filepath.Join(folder, "serving.yaml"), &kd)
	var image kuscia.AppImage
	decode(t, filepath.Join(folder, "image.yaml"), &image)
	return serving.Version{
		ID:           kd.Name,
		UID:          "6f1c1c2e-0000-4000-8000-000000000001",
		AppType:      kd.Labels[kuscia.LabelAppType],
		AffinityMode: kd.Annotations[kuscia.AnnotationAffinityMode],
		Spec:         kd.Spec,
		AppImages:    map[string]kuscia.AppImageSpec{image.Name: image.Spec},
	}
}

// written returns a party's objects as YAML documents.
func written(t require.TestingT, objects serving.Objects) []byte {
	var out bytes.Buffer
	write := func(object any) {
		raw, err := yaml.Marshal(object)
		require.NoError(t, err)
		out.WriteString("---\n")
		out.Write(raw)
	}
	if objects.ConfigMap != nil {
		write(objects.ConfigMap)
	}
	for _, s := range objects.Services {
		write(s)
	}
	write(objects.Deployment)
	return out.Bytes()
}

func TestRender_MatchesGoldenFiles(t *testing.T) {
	t.Parallel()
	cases := map[string]string{
		"document": "the serving and the AppImage of kuscia-deployment.md give the names, ports and environment that " +
			"the document shows",
		"document-full": "a party's overrides apply to that party alone",
		"roles": "roles select templates and are part of names, a prefix replaces the Deployment's name, a network " +
			"policy limits callers",
		"two-containers": "containers share the pod's ports, a template that differs between them has one file for " +
			"each, and paths into JSON variables are resolved",
		"dataproxy": "a single party with a GRPC port and no input config is a valid serving",
	}
	for name, reason := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join("testdata", "render", name)
			v := version(t, folder)
			require.Empty(t, v.Check(), reason)
			for i := range v.Spec.Parties {
				objects, err := serving.Render(v, i)
				require.NoError(t, err, reason)
				golden := filepath.Join(folder, fmt.Sprintf("party-%d.golden.yaml", i))
				if *update {
					require.NoError(t, os.WriteFile(golden, written(t, objects), 0o600))
				}
				expected, err := os.ReadFile(golden)
				require.NoError(t, err)
				require.Equal(t, string(expected), string(written(t, objects)), reason)
			}
		})
	}
}

func TestKusciaDeployment_DecodesDocumentedStatus(t *testing.T) {
	t.Parallel()
	var kd kuscia.KusciaDeployment
	decode(t, filepath.Join("testdata", "documents", "serving-with-status.yaml"), &kd)
	require.Equal(t, kuscia.PhaseAvailable, kd.Status.Phase)
	require.Equal(t, int32(1), kd.Status.PartyDeploymentStatuses["bob"]["secretflow-serving"].UpdatedReplicas)

	v := version(t, filepath.Join("testdata", "render", "document"))
	v.Spec = kd.Spec
	problems := v.Check()
	require.Len(t, problems, 1, "only the container that the AppImage does not have is refused in the document's "+
		"full example")
	require.Equal(t, 0, problems[0].Party)
	require.Contains(t, problems[0].Message,
		`template.spec has a container "serving", which AppImage secretflow-serving-image does not have: it has secretflow.`)
}

func TestRender_WritesValidJSONFile(t *testing.T) {
	t.Parallel()
	v := version(t, filepath.Join("testdata", "render", "document"))
	v.Spec.InputConfig = "ends with a quote \" a backslash \\ a bell \a and \""
	objects, err := serving.Render(v, 0)
	require.NoError(t, err)
	var file map[string]string
	require.NoError(t, json.Unmarshal([]byte(objects.ConfigMap.Data["serving-config.conf"]), &file),
		"a value that ends in a quotation mark, or has control characters, leaves the file JSON")
	require.Equal(t, v.Spec.InputConfig, file["input_config"])
	require.Equal(t, "secretflow-serving", file["serving_id"])
	require.Contains(t, file["cluster_def"], `"selfPartyIdx":0,"selfEndpointIdx":0}`)
}
