package answer

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/store/recent"
)

// How old an answer may be that was made for somebody else who asked the same.
const (
	FreshObject = 100 * time.Millisecond
	FreshList   = 300 * time.Millisecond
)

// Shared answers a request with JSON, made at most so long ago for anybody who asked for the same address. Nobody who has changed something through
// this server gets an answer of before that.
func Shared[V any](c echo.Context, answers *recent.Answers, fresh time.Duration, read func(context.Context) (V, error)) error {
	body, err := recent.Get(c.Request().Context(), answers, c.Request().URL.RequestURI(), fresh, func(ctx context.Context) ([]byte, error) {
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
