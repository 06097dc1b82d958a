package download

import (
	"context"
	"time"
)

// WithoutPauses makes a client wait no time before it continues, and tells how long it would have.
func (c *Client) WithoutPauses(told func(time.Duration)) *Client {
	c.pause = func(ctx context.Context, wait time.Duration) error {
		told(wait)
		return context.Cause(ctx)
	}
	return c
}
