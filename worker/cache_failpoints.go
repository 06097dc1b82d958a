//go:build failpoints

package worker

import (
	"os"
	"strconv"
)

// cacheSize is maxCachedWorkflows unless the environment overrides it: with SLIPWAY_STICKY_CACHE=0 every workflow task
// replays its history from the start, which reveals non-determinism. For tests only.
func cacheSize() int {
	if size, err := strconv.Atoi(os.Getenv("SLIPWAY_STICKY_CACHE")); err == nil {
		return size
	}
	return maxCachedWorkflows
}
