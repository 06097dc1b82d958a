package stream

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
)

const (
	// keepAlive is the interval of comment lines on a stream without events, so that no proxy closes it.
	keepAlive = 5 * time.Second
	// writeTimeout is how long a reader may take to accept one event before it is dropped.
	writeTimeout = 10 * time.Second
	// retryAfter is the Retry-After header, in seconds, of a reader that exceeds the limit.
	retryAfter = "10"
)

// Serve responds with the events of a release; subject is its key among all watched releases. The current state always
// comes first, so that a reader that reconnects needs no missed events. source is called once, for the first reader.
func (h *Hub) Serve(c echo.Context, subject string, source func() Source) error {
	end, err := h.admit()
	if err != nil {
		c.Response().Header().Set(echo.HeaderRetryAfter, retryAfter)
		return err
	}
	defer end()
	events, leave := h.watch(subject, func(ctx context.Context, events *broadcast) {
		follow(ctx, subject, source(), events)
	})
	defer leave()
	ctx := c.Request().Context()
	if err := firstEvent(ctx, events); err != nil {
		return err
	}
	stream := eventStream{out: c.Response(), control: http.NewResponseController(c.Response().Writer)}
	return stream.run(ctx, events)
}

// firstEvent waits for the first event, so that an error can still be returned as a normal response.
func firstEvent(ctx context.Context, events *broadcast) error {
	for {
		now := events.read()
		if now.ended || now.latest.number > 0 {
			return now.err
		}
		select {
		case <-now.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// eventStream writes server-sent events to one reader.
type eventStream struct {
	out     *echo.Response
	control *http.ResponseController
}

func (s eventStream) run(ctx context.Context, events *broadcast) error {
	header := s.out.Header()
	header.Set(echo.HeaderContentType, "text/event-stream")
	header.Set(echo.HeaderCacheControl, "no-store")
	header.Set("X-Accel-Buffering", "no") // else nginx buffers events
	s.out.WriteHeader(http.StatusOK)
	ticker := time.NewTicker(keepAlive)
	defer ticker.Stop()
	// else it would apply to the connection's next request
	defer func() { _ = s.control.SetWriteDeadline(time.Time{}) }()
	seen := int64(0)
	for {
		now := events.read()
		if now.latest.number > seen {
			seen = now.latest.number
			if s.write(now.latest.bytes()) != nil {
				return nil // the reader has disconnected
			}
		}
		if now.ended {
			return nil
		}
		select {
		case <-now.changed:
		case <-ticker.C:
			if s.write([]byte(": still here\n\n")) != nil {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (s eventStream) write(data []byte) error {
	// A server without write deadlines still works: TCP then detects a dead reader.
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := s.out.Write(data); err != nil {
		return err
	}
	return s.control.Flush()
}
