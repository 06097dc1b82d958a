// Package definitions installs custom resource definitions that tests need.
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

// patience is how long a test waits for the API server to serve a new resource.
const patience = time.Minute

var (
	installing sync.Mutex
	// installed has the addresses and names of what this process has seen served: the API server compiles the rules of a definition even to say that it is there.
	installed = map[string]bool{}
)

// Install sees to it that the API server serves what the definitions define, a set under a name. They stay when the test is over. Several tests may
// install the same at once.
func Install(t testing.TB, config *rest.Config, set string, read func(t testing.TB) []*apiextensionsv1.CustomResourceDefinition) {
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
