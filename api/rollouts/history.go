package rollouts

import (
	"context"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/page"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/v1alpha1"
)

// GetRolloutHistory answers GET /api/v1/rollouts/{namespace}/{name}/history: the release that runs, and the past ones from their records.
func (h *Handlers) GetRolloutHistory(c echo.Context, namespace schema.Namespace, name schema.RolloutName,
	params schema.GetRolloutHistoryParams) error {
	key, err := newRolloutKey(params.Party, namespace, name)
	if err != nil {
		return err
	}
	asked, err := page.Parse(params.Limit, params.Cursor)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	records, err := h.Home.ListRecords(ctx, key.labels())
	if err != nil {
		return err
	}
	if len(records) == 0 {
		return key.missing()
	}
	past := &rolloutHistory{Handlers: h, key: key, newest: records[0].Name}
	return page.AnswerRecords(c, asked, records, func(record *v1alpha1.ReleaseRecord) (schema.RolloutRelease, bool, error) {
		release, err := past.release(ctx, record.Name)
		return release, true, err
	})
}

// rolloutHistory reads the releases of one name. The live one is asked once, and only if some record is not complete.
type rolloutHistory struct {
	*Handlers
	key    rolloutKey
	newest string
	live   *rolloutSnapshot
}

func (p *rolloutHistory) release(ctx context.Context, name string) (schema.RolloutRelease, error) {
	record, err := p.Home.GetRelease(ctx, name)
	if err != nil {
		return schema.RolloutRelease{}, err
	}
	status, err := p.status(ctx, record)
	return schema.RolloutRelease{Rollout: status, Actor: record.Spec.Actor, Reason: record.Spec.Reason,
		Via: record.Labels[v1alpha1.LabelVia]}, err
}

func (p *rolloutHistory) status(ctx context.Context, record *v1alpha1.ReleaseRecord) (rollout.Status, error) {
	if record.Outcome != nil {
		seen, err := p.readComplete(record)
		return seen.status, err
	}
	if p.live == nil {
		seen, err := p.readRollout(ctx, p.key)
		if err != nil {
			return rollout.Status{}, err
		}
		p.live = &seen
	}
	if p.live.status.Record == record.Name {
		return p.live.status, nil
	}
	status, err := p.outlineRollout(record)
	if err != nil {
		return status, err
	}
	if record.Name == p.newest {
		status.Reason = "is being started: the release before it goes back first"
		return status, nil
	}
	status.Phase, status.Reason = rollout.PhaseFailed, "it was never recorded as over: its workflow was terminated, or never started"
	return status, nil
}
