package api

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/release/plan"
)

const (
	// keepAlive is how often a line is sent on a stream without events, so that nobody in between closes it.
	keepAlive = 5 * time.Second
	// writeTimeout is how long a reader may take to accept one event before it is given up.
	writeTimeout = 10 * time.Second
)

// WatchTask answers GET /api/v1/tasks/{id}/events. The current state always comes first, so that a reader that comes back needs nothing of what it missed.
func (h *handlers) WatchTask(c echo.Context, id TaskID, _ WatchTaskParams) error {
	if !isTaskID(id) {
		return noSuchTask(id)
	}
	return h.watch(c, plan.WorkflowID(id))
}

// watch answers with the events of a release.
func (h *handlers) watch(c echo.Context, workflowID string) error {
	news, leave := h.hub.watch(workflowID)
	defer leave()
	ctx := c.Request().Context()
	if err := firstNotice(ctx, news); err != nil {
		return err
	}
	stream := eventStream{out: c.Response(), control: http.NewResponseController(c.Response().Writer)}
	return stream.run(ctx, news)
}

// firstNotice waits until there is something to send, so that an error can still be an answer of its own.
func firstNotice(ctx context.Context, news *bulletin) error {
	for {
		now := news.read()
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

func (s eventStream) run(ctx context.Context, news *bulletin) error {
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
		now := news.read()
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

func (s eventStream) write(event []byte) error {
	// A server that cannot set deadlines serves all the same; its reader is then given up by TCP.
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := s.out.Write(event); err != nil {
		return err
	}
	return s.control.Flush()
}

// bytes is the notice as it goes over the wire. JSON has no line breaks in it, so that one data line holds it.
func (n notice) bytes() []byte {
	var event bytes.Buffer
	fmt.Fprintf(&event, "event: %s\n", n.name)
	if n.id != "" {
		fmt.Fprintf(&event, "id: %s\n", n.id)
	}
	fmt.Fprintf(&event, "data: %s\n\n", n.data)
	return event.Bytes()
}
