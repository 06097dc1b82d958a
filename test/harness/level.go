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

// There are three runs. `make test` has what a change most likely breaks. `make test-long` has the rest of what stands for a promise, and finds it by its
// name, TestLong…. `make test-soak` has every case of every promise, TestSoak….

// Long skips a test elsewhere than in `make test-long`. Its name begins with TestLong.
func Long(t testing.TB) {
	t.Helper()
	if os.Getenv("SLIPWAY_TEST_LONG") == "" {
		t.Skip("belongs to `make test-long`")
	}
}

// Soak skips a test elsewhere than in `make test-soak`. Its name begins with TestSoak, and it takes less than an hour on 2 cores, so that the soak can be
// interrupted between tests.
func Soak(t testing.TB) {
	t.Helper()
	if os.Getenv("SLIPWAY_TEST_SOAK") == "" {
		t.Skip("belongs to `make test-soak`")
	}
}

// Random is a source of random moments that differs from test to test. SLIPWAY_TEST_SEED repeats a run; without it the clock is the seed, which is logged.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if asked := os.Getenv("SLIPWAY_TEST_SEED"); asked != "" {
		var err error
		seed, err = strconv.ParseUint(asked, 10, 64)
		require.NoError(t, err, "SLIPWAY_TEST_SEED is a number")
	}
	t.Logf("SLIPWAY_TEST_SEED=%d", seed)
	name := fnv.New64a()
	_, _ = name.Write([]byte(t.Name()))
	return rand.New(rand.NewPCG(seed, name.Sum64()))
}

// Covered tells the report of the run how much of something a test has gone through.
func Covered(t testing.TB, n int, what string) {
	t.Helper()
	t.Logf("covered: %d %s", n, what)
}
