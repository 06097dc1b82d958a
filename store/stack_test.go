package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"slipway.io/slipway/store"
	"slipway.io/slipway/test/harness"
)

// newStore is a store on a namespace of the test's own, which is deleted at its end.
func newStore(t *testing.T) *store.Store {
	t.Helper()
	stack := harness.SharedStack(t)
	own := "store-" + rand.String(8)
	home, err := store.New(stack.REST, own, own)
	require.NoError(t, err)
	require.NoError(t, home.EnsureNamespace(testContext(t)))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, stack.Kube.CoreV1().Namespaces().Delete(ctx, own, metav1.DeleteOptions{}))
	})
	return home
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
