package kruise

import (
	"embed"
	"io/fs"
	"path"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/test/definitions"
)

//go:embed crds/*.yaml
var crds embed.FS

// Install installs the definitions of the three kinds.
func Install(t testing.TB, config *rest.Config) {
	t.Helper()
	definitions.Install(t, config, "kruise", read)
}

func read(t testing.TB) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	files, err := fs.ReadDir(crds, "crds")
	require.NoError(t, err)
	all := make([]*apiextensionsv1.CustomResourceDefinition, len(files))
	for i, file := range files {
		raw, err := crds.ReadFile(path.Join("crds", file.Name()))
		require.NoError(t, err)
		require.NoError(t, yaml.UnmarshalStrict(raw, &all[i]))
	}
	return all
}
