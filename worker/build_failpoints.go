//go:build failpoints

package worker

import (
	"cmp"
	"os"
)

// ThisBuild is the ID, unless SLIPWAY_TEST_BUILD says another one: so one program plays two builds. In tests only.
func ThisBuild(id string) string { return cmp.Or(os.Getenv("SLIPWAY_TEST_BUILD"), id) }
