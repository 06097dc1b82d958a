package home_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.io/slipway/activities/home"
)

// testCluster is the cluster of the local stack; without one the test is skipped.
func testCluster(t *testing.T) *rest.Config {
	t.Helper()
	if os.Getenv("SLIPWAY_TEST_STACK") == "" {
		t.Skip("needs the local stack: make up, then make test (SLIPWAY_TEST_STACK is not set)")
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("SLIPWAY_TEST_KUBECONFIG"))
	require.NoError(t, err)
	return config
}

// newStore is a store on a namespace of the test's own, which is deleted at its end.
func newStore(t *testing.T) *home.Store {
	t.Helper()
	config := testCluster(t)
	own := "store-" + rand.String(8)
	store, err := home.NewStore(config, own, own)
	require.NoError(t, err)
	ctx := testContext(t)
	require.NoError(t, store.EnsureNamespace(ctx))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, clients(t, config).CoreV1().Namespaces().Delete(ctx, store.Namespace(), metav1.DeleteOptions{}))
	})
	return store
}

func clients(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	set, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return set
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
