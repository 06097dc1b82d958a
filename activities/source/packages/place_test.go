package packages

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/buckets"
)

func TestMain(m *testing.M) {
	for name, value := range buckets.Environment {
		_ = os.Setenv(name, value)
	}
	os.Exit(m.Run())
}

// location is where the store of a test is kept.
type location struct {
	// open opens the store there; it may be called repeatedly.
	open func(*testing.T, Options) *Store
	// partials lists uploads that were started there and neither finished nor removed.
	partials func(*testing.T) []string
}

// forEachBackend runs a test with a folder and with a bucket.
func forEachBackend(t *testing.T, test func(*testing.T, location)) {
	t.Run("folder", func(t *testing.T) {
		t.Parallel()
		test(t, inFolder(t.TempDir()))
	})
	t.Run("bucket", func(t *testing.T) {
		t.Parallel()
		test(t, inBucket(buckets.Start(t)))
	})
}

func inFolder(folder string) location {
	return location{
		open: func(t *testing.T, options Options) *Store { return open(t, folder, options) },
		partials: func(t *testing.T) []string {
			found, err := filepath.Glob(filepath.Join(folder, partialFolder, "*"))
			require.NoError(t, err)
			return found
		},
	}
}

func inBucket(server *buckets.Server) location {
	return location{
		open:     func(t *testing.T, options Options) *Store { return openBucket(t, server, options) },
		partials: func(*testing.T) []string { return server.Uploads() },
	}
}

func open(t *testing.T, folder string, options Options) *Store {
	t.Helper()
	s, err := Open(folder, forTests(options))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func openBucket(t *testing.T, server *buckets.Server, options Options) *Store {
	t.Helper()
	s, err := OpenBucket(context.Background(), optionsFor(server), forTests(options))
	require.NoError(t, err)
	return s
}

func optionsFor(server *buckets.Server) BucketOptions {
	return BucketOptions{Bucket: buckets.Name, Prefix: "shop/", Endpoint: server.URL}
}

func forTests(options Options) Options {
	if options.MaxBytes == 0 {
		options.MaxBytes = 1 << 20
	}
	return options
}
