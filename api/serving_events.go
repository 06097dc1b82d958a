package api

import (
	"context"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/serving"
)

// confirmServingEvery is how often a serving that is watched is looked at although nobody has told of a change: it is how its readers know that the
// silence is none of the watch's own.
const confirmServingEvery = 10 * time.Second

// WatchServing answers GET /api/v1/servings/{id}/events. The current state always comes first, so that a reader that comes back needs nothing of what it
// missed.
func (h *handlers) WatchServing(c echo.Context, id ServingID, _ WatchServingParams) error {
	return h.watch(c, serving.WorkflowPrefix(id))
}

// servingOfSubject is the serving that a subject of the hub stands for: what begins the workflow IDs of all its operations.
func servingOfSubject(subject string) (id string, ok bool) {
	_, id, _ = strings.Cut(strings.TrimSuffix(subject, "/"), "/")
	return id, subject == serving.WorkflowPrefix(id)
}

// lookAtServing reads a serving again and again. It is over only when it is gone.
func (h *handlers) lookAtServing(id string) func(ctx context.Context) (glimpse, error) {
	return func(ctx context.Context) (glimpse, error) {
		view, err := h.readServing(ctx, id)
		var workflow *plan.WorkflowRef
		if view.Operation != nil {
			workflow = view.Operation.Workflow
		}
		return glimpse{value: view, workflow: workflow}, err
	}
}

// tailServing waits on the one watch that tells of changes of all servings.
func (f *releaseFollower) tailServing(ctx context.Context, id string) {
	changed, leave := f.Home.FollowServing(id)
	defer leave()
	f.nudge() // for what has changed before there was anybody to tell
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			f.nudge()
		}
	}
}
