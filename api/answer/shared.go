package answer

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/recent"
)

// The maximum ages of a cached response shared by several clients.
const (
	ObjectMaxAge = 100 * time.Millisecond
	ListMaxAge   = 300 * time.Millisecond
)

// Shared responds with JSON that may be shared by all requests for the same URL for up to maxAge. After a write through
// this server, clients never get an older response.
func Shared[V any](c echo.Context, answers *recent.Cache, maxAge time.Duration,
	read func(context.Context) (V, error)) error {
	body, err := recent.Get(c.Request().Context(), answers, c.Request().URL.RequestURI(), maxAge,
		func(ctx context.Context) ([]byte, error) {
			value, err := read(ctx)
			if err != nil {
				return nil, err
			}
			body, err := json.Marshal(value)
			return append(body, '\n'), err
		})
	if err != nil {
		return err
	}
	return c.JSONBlob(http.StatusOK, body)
}
