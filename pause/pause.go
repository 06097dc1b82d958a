// Package pause waits between the attempts of background work.
package pause

import (
	"context"
	"time"
)

// For waits for d. It returns the cause of the context's end if that comes first.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
