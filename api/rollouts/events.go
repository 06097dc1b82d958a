package rollouts

import (
	"context"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/stream"
)

// WatchRollout answers GET /api/v1/rollouts/{namespace}/{name}/events.
func (h *Handlers) WatchRollout(c echo.Context, namespace schema.Namespace, name schema.RolloutName,
	params schema.WatchRolloutParams) error {
	key, err := newRolloutKey(params.Party, namespace, name)
	if err != nil {
		return err
	}
	return h.streams.Serve(c, key.workflowID(), func() stream.Source {
		reader := &rolloutReader{Handlers: h}
		return stream.OfWorkflow(h.Backend, key.workflowID(), func(ctx context.Context) (stream.Snapshot, error) {
			seen, err := reader.read(ctx, key)
			return stream.Snapshot{Value: seen.status, Workflow: seen.status.Workflow, Over: !seen.open && !seen.starting,
				Unanswered: seen.unanswered}, err
		})
	})
}
