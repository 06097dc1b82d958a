//go:build !failpoints

// Package failpoint kills the process at chosen points, in tests only: build with the tag "failpoints" to have it (design §10). Without the tag every call is
// nothing at all.
package failpoint

// Enabled says whether the failpoints are built in.
const Enabled = false

// Hit does nothing in this build.
func Hit(string) {}
