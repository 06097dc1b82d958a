package servings

import (
	"context"
	"time"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/stream"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/serving"
)

// confirmInterval is how often a watched serving is read without a notification, to confirm that the stream works.
const confirmInterval = 10 * time.Second

// WatchServing answers GET /api/v1/servings/{id}/events. The state of a serving is in its KusciaDeployment; it is read
// when that has changed.
func (h *Handlers) WatchServing(c echo.Context, id schema.ServingID, _ schema.WatchServingParams) error {
	return h.streams.Serve(c, serving.WorkflowPrefix(id), func() stream.Source {
		return stream.Source{Read: h.look(id), Watch: h.tail(id), Interval: confirmInterval}
	})
}

// look returns the function that reads a serving for its stream. The stream ends only when the serving is deleted.
func (h *Handlers) look(id string) func(ctx context.Context) (stream.Snapshot, error) {
	return func(ctx context.Context) (stream.Snapshot, error) {
		view, err := h.readServing(ctx, id)
		var workflow *audit.WorkflowRef
		if view.Operation != nil {
			workflow = view.Operation.Workflow
		}
		return stream.Snapshot{Value: view, Workflow: workflow}, err
	}
}

// tail returns the function that waits for changes of a serving, on the shared watch of all servings.
func (h *Handlers) tail(id string) func(ctx context.Context, nudge func()) {
	return func(ctx context.Context, nudge func()) {
		changed, leave := h.Home.FollowServing(id)
		defer leave()
		nudge() // covers changes before the subscription
		for {
			select {
			case <-ctx.Done():
				return
			case <-changed:
				nudge()
			}
		}
	}
}
