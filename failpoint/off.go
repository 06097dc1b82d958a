//go:build !failpoints

// Package failpoint kills the process at chosen points, for tests only: build with the tag "failpoints" to enable it.
// Without the tag every call does nothing.
package failpoint

// Hit does nothing in this build.
func Hit(string) {}

// Around makes a write; it does nothing else in this build.
func Around(_ string, write func() error) error { return write() }
