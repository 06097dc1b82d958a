// Package definitions installs the custom resource definitions that tests need.
package definitions

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// patience is the timeout for the API server to serve a new resource.
const patience = time.Minute

var (
	installing sync.Mutex
	// installed holds the address and name of each set that this process has seen served: even a Create that fails with
	// AlreadyExists makes the API server compile the rules of a definition.
	installed = map[string]bool{}
)

// Install makes the API server serve a named set of definitions. They stay after the test. Several tests may install
// the same set at once.
func Install(t testing.TB, config *rest.Config, set string,
	read func(t testing.TB) []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	installing.Lock()
	defer installing.Unlock()
	if installed[config.Host+" "+set] {
		return
	}
	client, err := apiextensions.NewForConfig(config)
	require.NoError(t, err)
	for _, crd := range read(t) {
		_, err = client.CustomResourceDefinitions().Create(context.Background(), crd, metav1.CreateOptions{})
		require.True(t, err == nil || apierrors.IsAlreadyExists(err), "%s: %v", crd.Name, err)
		require.Eventually(t, func() bool {
			now, err := client.CustomResourceDefinitions().Get(context.Background(), crd.Name, metav1.GetOptions{})
			return err == nil && established(now)
		}, patience, 50*time.Millisecond, "%s is not served", crd.Name)
	}
	installed[config.Host+" "+set] = true
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.Established {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}
