package plans

import (
	"context"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/stream"
	"slipway.io/slipway/release/plan"
)

// WatchTask answers GET /api/v1/tasks/{id}/events.
func (h *Handlers) WatchTask(c echo.Context, id schema.TaskID, _ schema.WatchTaskParams) error {
	if !isTaskID(id) {
		return noSuchTask(id)
	}
	return h.streams.Serve(c, plan.WorkflowID(id), func() stream.Source {
		reader := newTaskReader(h)
		return stream.OfWorkflow(h.Backend, plan.WorkflowID(id), func(ctx context.Context) (stream.Snapshot, error) {
			seen, err := h.readTask(ctx, id, reader)
			unanswered := seen.unanswered
			if unanswered != "" {
				unanswered = seen.task.Reason
			}
			return stream.Snapshot{Value: seen.task, Workflow: seen.task.Workflow, Over: !seen.open && !seen.starting, Unanswered: unanswered}, err
		})
	})
}
