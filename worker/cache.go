//go:build failpoints

package worker

import (
	"os"
	"strconv"

	"go.temporal.io/sdk/worker"
)

// With SLIPWAY_STICKY_CACHE=0 every workflow task replays its history from the start, which finds what is not deterministic. In tests only:
// the size holds for the whole process and has to be set before its first worker.
func init() {
	if size, err := strconv.Atoi(os.Getenv("SLIPWAY_STICKY_CACHE")); err == nil {
		worker.SetStickyWorkflowCacheSize(size)
	}
}
