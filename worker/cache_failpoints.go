//go:build failpoints

package worker

import (
	"os"
	"strconv"
)

// keptWorkflows is mostKept, unless the environment says otherwise: with SLIPWAY_STICKY_CACHE=0 every workflow task replays its history from the start, which
// finds what is not deterministic. In tests only.
func keptWorkflows() int {
	if size, err := strconv.Atoi(os.Getenv("SLIPWAY_STICKY_CACHE")); err == nil {
		return size
	}
	return mostKept
}
