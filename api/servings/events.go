package servings

import (
	"context"
	"time"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/stream"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/serving"
)

// confirmEvery is how often a serving that is watched is looked at although nobody has told of a change: it is how its readers know that
// the silence is none of the watch's own.
const confirmEvery = 10 * time.Second

// WatchServing answers GET /api/v1/servings/{id}/events. A serving, whose state is in its KusciaDeployment, is looked at when that changed.
func (h *Handlers) WatchServing(c echo.Context, id schema.ServingID, _ schema.WatchServingParams) error {
	return h.streams.Serve(c, serving.WorkflowPrefix(id), func() stream.Source {
		return stream.Source{Look: h.look(id), Tail: h.tail(id), Every: confirmEvery}
	})
}

// look reads a serving again and again. It is over only when it is gone.
func (h *Handlers) look(id string) func(ctx context.Context) (stream.Snapshot, error) {
	return func(ctx context.Context) (stream.Snapshot, error) {
		view, err := h.readServing(ctx, id)
		var workflow *plan.WorkflowRef
		if view.Operation != nil {
			workflow = view.Operation.Workflow
		}
		return stream.Snapshot{Value: view, Workflow: workflow}, err
	}
}

// tail waits on the one watch that tells of changes of all servings.
func (h *Handlers) tail(id string) func(ctx context.Context, nudge func()) {
	return func(ctx context.Context, nudge func()) {
		changed, leave := h.Home.FollowServing(id)
		defer leave()
		nudge() // for what has changed before there was anybody to tell
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
