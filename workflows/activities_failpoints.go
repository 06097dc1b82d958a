//go:build failpoints

package workflows

import (
	"os"
	"time"
)

// With SLIPWAY_HEARTBEAT_TIMEOUT a dead worker is noticed sooner: in tests only, which kill many.
func init() {
	if timeout, err := time.ParseDuration(os.Getenv("SLIPWAY_HEARTBEAT_TIMEOUT")); err == nil {
		heartbeatTimeout = timeout
	}
}
