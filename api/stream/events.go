package stream

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
)

const (
	// keepAlive is how often a line is sent on a stream without events, so that nobody in between closes it.
	keepAlive = 5 * time.Second
	// writeTimeout is how long a reader may take to accept one event before it is given up.
	writeTimeout = 10 * time.Second
	// retryAfter is when a reader for whom there was no room may come back, in seconds.
	retryAfter = "10"
)

// Serve answers with the events of a release, which its subject names among all that are watched. The current state always comes first, so
// that a reader that comes back needs nothing of what it missed. source is asked for once, for the first reader.
func (h *Hub) Serve(c echo.Context, subject string, source func() Source) error {
	end, err := h.admit()
	if err != nil {
		c.Response().Header().Set(echo.HeaderRetryAfter, retryAfter)
		return err
	}
	defer end()
	events, leave := h.watch(subject, func(ctx context.Context, events *broadcast) { follow(ctx, subject, source(), events) })
	defer leave()
	ctx := c.Request().Context()
	if err := firstEvent(ctx, events); err != nil {
		return err
	}
	stream := eventStream{out: c.Response(), control: http.NewResponseController(c.Response().Writer)}
	return stream.run(ctx, events)
}

// firstEvent waits until there is something to send, so that an error can still be an answer of its own.
func firstEvent(ctx context.Context, events *broadcast) error {
	for {
		now := events.read()
		if now.over || now.latest.number > 0 {
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
	header.Set("X-Accel-Buffering", "no") // else nginx collects events before it passes them on
	s.out.WriteHeader(http.StatusOK)
	ticker := time.NewTicker(keepAlive)
	defer ticker.Stop()
	defer func() { _ = s.control.SetWriteDeadline(time.Time{}) }() // else it would be the connection's next request's
	seen := int64(0)
	for {
		now := events.read()
		if now.latest.number > seen {
			seen = now.latest.number
			if s.write(now.latest.bytes()) != nil {
				return nil // the reader is gone
			}
		}
		if now.over {
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
	// A server that cannot set deadlines serves all the same; its reader is then given up by TCP.
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := s.out.Write(data); err != nil {
		return err
	}
	return s.control.Flush()
}
