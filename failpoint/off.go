//go:build !failpoints

// Package failpoint kills the process at chosen points, in tests only: build with the tag "failpoints" to have it. Without the tag every
// call is nothing at all.
package failpoint

// Hit does nothing in this build.
func Hit(string) {}
