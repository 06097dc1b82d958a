package download

import (
	"context"
	"time"
)

// WithoutPauses makes a client skip its pauses; report gets each one.
func (c *Client) WithoutPauses(report func(time.Duration)) *Client {
	c.pause = func(ctx context.Context, wait time.Duration) error {
		report(wait)
		return context.Cause(ctx)
	}
	return c
}
