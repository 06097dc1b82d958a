package centre_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/store"
	"slipway.io/slipway/test/harness"
)

// newStore returns a store in a namespace of the test's own, with all custom resource definitions of the engine.
func newStore(t *testing.T) *store.Store {
	t.Helper()
	stack := harness.SharedStack(t)
	own := stack.Namespace(t, "centre")
	home, err := store.New(stack.REST, own, own)
	require.NoError(t, err)
	require.NoError(t, home.EnsureCRDs(testContext(t)))
	return home
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
