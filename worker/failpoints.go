//go:build failpoints

package worker

import (
	"cmp"
	"os"
	"strconv"
)

// ThisBuild returns id, or SLIPWAY_TEST_BUILD if that is set, so that one program can play two builds. For tests only.
func ThisBuild(id string) string { return cmp.Or(os.Getenv("SLIPWAY_TEST_BUILD"), id) }

// cacheSize is maxCachedWorkflows unless the environment overrides it: with SLIPWAY_STICKY_CACHE=0 every workflow task
// replays its history from the start, which reveals non-determinism. For tests only.
func cacheSize() int {
	if size, err := strconv.Atoi(os.Getenv("SLIPWAY_STICKY_CACHE")); err == nil {
		return size
	}
	return maxCachedWorkflows
}
