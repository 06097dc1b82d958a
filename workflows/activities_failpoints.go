//go:build failpoints

package workflows

import (
	"os"
	"time"
)

// SLIPWAY_HEARTBEAT_TIMEOUT shortens the time until a dead worker is noticed, for tests that kill many workers.
func init() {
	if timeout, err := time.ParseDuration(os.Getenv("SLIPWAY_HEARTBEAT_TIMEOUT")); err == nil {
		heartbeatTimeout = timeout
	}
}
