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

var update = flag.Bool("update", false, "write what is rendered as what is expected")

// decode reads a document of the home cluster, and nothing in it that its kind does not have.
func decode(t require.TestingT, file string, into any) {
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(raw, into), file)
}

// version puts together what a serving and AppImages of the documents in a folder make.
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

// written are a party's objects as YAML documents.
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

func TestRenderedObjectsAreTheExpectedOnes(t *testing.T) {
	t.Parallel()
	cases := map[string]string{
		"document":       "the serving and the AppImage of kuscia-deployment.md give the names, ports and environment that the document shows",
		"document-full":  "what a party has otherwise than its AppImage is taken over for that party alone",
		"roles":          "roles pick templates and are part of names, a prefix takes the place of the Deployment's name, a network policy says who may call",
		"two-containers": "containers share the pod's ports, a template that differs between them has a file for each, and paths into JSON variables are followed",
		"dataproxy":      "a single party with a GRPC port and no input config is a serving too",
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

func TestDocumentOfTheStatusFitsTheKind(t *testing.T) {
	t.Parallel()
	var kd kuscia.KusciaDeployment
	decode(t, filepath.Join("testdata", "documents", "serving-with-status.yaml"), &kd)
	require.Equal(t, kuscia.PhaseAvailable, kd.Status.Phase)
	require.Equal(t, int32(1), kd.Status.PartyDeploymentStatuses["bob"]["secretflow-serving"].UpdatedReplicas)

	v := version(t, filepath.Join("testdata", "render", "document"))
	v.Spec = kd.Spec
	problems := v.Check()
	require.Len(t, problems, 1, "the document's full example names a container that its AppImage does not have, and that alone is refused")
	require.Equal(t, 0, problems[0].Party)
	require.Contains(t, problems[0].Message, `template.spec has a container "serving", which AppImage secretflow-serving-image does not have: it has secretflow.`)
}

func TestConfigurationFileIsSoundJSON(t *testing.T) {
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
