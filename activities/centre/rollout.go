package centre

import (
	"context"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/failpoint"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

// CompleteRollout asks the rollout's own workflow for its final status and writes it into the record, so that it outlives Temporal's
// retention.
func (a *Activities) CompleteRollout(ctx context.Context, in rollout.CompleteRequest) error {
	query, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	value, err := a.temporal.QueryWorkflow(query, in.WorkflowID, in.RunID, workloadops.QueryState)
	if err != nil {
		return err
	}
	var status rollout.Status
	if err := value.Get(&status); err != nil {
		return err
	}
	failpoint.Hit("rollout.record.complete.before")
	if err := a.store.CompleteRollout(ctx, in.Record, status, a.recordLimit); err != nil {
		return attempt.RetriedError(err)
	}
	failpoint.Hit("rollout.record.complete.after")
	return nil
}
