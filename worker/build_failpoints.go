//go:build failpoints

package worker

import (
	"cmp"
	"os"
)

// ThisBuild returns id, or SLIPWAY_TEST_BUILD if that is set, so that one program can play two builds. For tests only.
func ThisBuild(id string) string { return cmp.Or(os.Getenv("SLIPWAY_TEST_BUILD"), id) }
