package watch

import (
	"context"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"

	"slipway.io/slipway/pause"
)

// reconnectPause is the pause, up to twice as long, between attempts to reach an API server that accepts no connection.
// client-go's own pauses grow to a minute: for so long after the server's return, no change would be seen.
const reconnectPause = time.Second / 2

// reconnection reports that an API server can't be reached.
type reconnection struct {
	failed func(ctx context.Context, err error)
}

// reconnect repeats a request until the API server accepts the connection, or the context ends. It reports the failure
// at once, and then as often as a watch with recent errors is distrusted.
func reconnect[R any](ctx context.Context, again reconnection, request func() (R, error)) (R, error) {
	var reported time.Time
	for {
		result, err := request()
		if !refusesConnections(err) || ctx.Err() != nil {
			return result, err
		}
		if now := time.Now(); now.Sub(reported) >= distrustPeriod {
			again.failed(ctx, err)
			reported = now
		}
		if pause.For(ctx, wait.Jitter(reconnectPause, 1)) != nil {
			return result, err
		}
	}
}

// refusesConnections reports whether an API server does not run, or has just ended.
func refusesConnections(err error) bool {
	return err != nil && (utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) ||
		utilnet.IsProbableEOF(err))
}
