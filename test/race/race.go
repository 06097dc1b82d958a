// Package race leaves bounds of memory and time to runs without the race detector, which multiplies both.
package race

import "testing"

// SkipBounds skips a test or case that bounds what a program takes, where the race detector watches it.
func SkipBounds(t testing.TB) {
	t.Helper()
	if detector {
		t.Skip("bounds memory or time, which the race detector multiplies: run it by `make test`")
	}
}
