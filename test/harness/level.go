package harness

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// There are three runs. `make test` covers what a change most likely breaks. `make test-long` runs the remaining tests
// of the promises, which it finds by their names, TestLong…. `make test-soak` runs every case of every promise,
// TestSoak….

// Long skips a test outside `make test-long`. The name of the test begins with TestLong.
func Long(t testing.TB) {
	t.Helper()
	if os.Getenv("SLIPWAY_TEST_LONG") == "" {
		t.Skip("belongs to `make test-long`")
	}
}

// Soak skips a test outside `make test-soak`. The name of the test begins with TestSoak. The test takes less than an
// hour on 2 cores, so that the soak can be interrupted between tests.
func Soak(t testing.TB) {
	t.Helper()
	if os.Getenv("SLIPWAY_TEST_SOAK") == "" {
		t.Skip("belongs to `make test-soak`")
	}
}

// Random returns a random source that differs from test to test. SLIPWAY_TEST_SEED repeats a run; without it the clock
// is the seed. The seed is logged.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if asked := os.Getenv("SLIPWAY_TEST_SEED"); asked != "" {
		var err error
		seed, err = strconv.ParseUint(asked, 10, 64)
		require.NoError(t, err, "SLIPWAY_TEST_SEED must be a number")
	}
	t.Logf("SLIPWAY_TEST_SEED=%d", seed)
	name := fnv.New64a()
	_, _ = name.Write([]byte(t.Name()))
	return rand.New(rand.NewPCG(seed, name.Sum64()))
}

// Covered logs how many cases a test has covered, for the report of the run.
func Covered(t testing.TB, n int, what string) {
	t.Helper()
	t.Logf("covered: %d %s", n, what)
}
