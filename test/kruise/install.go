package kruise

import (
	"context"
	"embed"
	"io/fs"
	"path"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

//go:embed crds/*.yaml
var crds embed.FS

// patience is how long a test waits for the API server to serve a new resource.
const patience = 30 * time.Second

// Install sees to it that the API server serves the three kinds. Several tests may do so at the same time.
func Install(t testing.TB, config *rest.Config) {
	t.Helper()
	client, err := apiextensions.NewForConfig(config)
	require.NoError(t, err)
	files, err := fs.ReadDir(crds, "crds")
	require.NoError(t, err)
	for _, file := range files {
		raw, err := crds.ReadFile(path.Join("crds", file.Name()))
		require.NoError(t, err)
		var crd apiextensionsv1.CustomResourceDefinition
		require.NoError(t, yaml.UnmarshalStrict(raw, &crd))
		_, err = client.CustomResourceDefinitions().Create(context.Background(), &crd, metav1.CreateOptions{})
		require.True(t, err == nil || apierrors.IsAlreadyExists(err), "%s: %v", crd.Name, err)
		require.Eventually(t, func() bool {
			now, err := client.CustomResourceDefinitions().Get(context.Background(), crd.Name, metav1.GetOptions{})
			return err == nil && established(now)
		}, patience, 50*time.Millisecond, "%s is not served", crd.Name)
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
