package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/store"
	"slipway.io/slipway/test/harness"
)

// newStore is a store on a namespace of the test's own, which is deleted at its end.
func newStore(t *testing.T) *store.Store {
	t.Helper()
	stack := harness.SharedStack(t)
	own := stack.Namespace(t, "store")
	home, err := store.New(stack.REST, own, own)
	require.NoError(t, err)
	require.NoError(t, home.EnsureNamespace(testContext(t)))
	return home
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
