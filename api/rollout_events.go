package api

import (
	"github.com/labstack/echo/v4"
)

// WatchRollout answers GET /api/v1/rollouts/{namespace}/{name}/events. The current state always comes first, so that a reader that comes back
// needs nothing of what it missed.
func (h *handlers) WatchRollout(c echo.Context, namespace Namespace, name RolloutName, params WatchRolloutParams) error {
	key, err := newRolloutKey(params.Party, namespace, name)
	if err != nil {
		return err
	}
	return h.watch(c, key.workflowID())
}
