// Package race skips tests of memory and time limits under the race detector, which multiplies both.
package race

import "testing"

// SkipBounds skips a test or subtest that limits memory or time if the race detector is on.
func SkipBounds(t testing.TB) {
	t.Helper()
	if detector {
		t.Skip("bounds memory or time, which the race detector multiplies: run it by `make test`")
	}
}
