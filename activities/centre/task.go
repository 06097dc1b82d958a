package centre

import (
	"context"
	"time"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/failpoint"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workloadops"
)

// BeginTask says whether a newer task of the same plan has taken this one's place: a plan has one live task.
// Of a resume and an execute at the same moment one wins: both write the plan's status with the version that they read.
func (a *Activities) BeginTask(ctx context.Context, in workloadops.TaskRequest) (workloadops.BeginTaskResult, error) {
	live, err := a.store.LiveTask(ctx, in.Plan)
	if err != nil {
		return workloadops.BeginTaskResult{}, attempt.RetriedError(err)
	}
	if live.Task != "" && live.Task != in.Task {
		return workloadops.BeginTaskResult{Superseded: live.Task}, nil
	}
	if in.Reclaim && live.Task == in.Task {
		failpoint.Hit("plan.claim.before")
		if err := a.store.ClaimPlan(ctx, in.Plan, live.ResourceVersion, in.Task); err != nil {
			return workloadops.BeginTaskResult{}, err // somebody else wrote the plan: the next try looks again
		}
		failpoint.Hit("plan.claim.after")
	}
	return workloadops.BeginTaskResult{}, nil
}

// queryTimeout bounds how long a workflow may take to say what became of it.
const queryTimeout = 5 * time.Second

// CompleteRecord asks the task's own workflow for its final state and writes it into the record, so that it outlives Temporal's
// retention. The state is asked for rather than passed: with a thousand services it is too large for history.
func (a *Activities) CompleteRecord(ctx context.Context, in workloadops.TaskRequest) error {
	query, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	value, err := a.temporal.QueryWorkflow(query, plan.WorkflowID(in.Task), in.RunID, workloadops.QueryState)
	if err != nil {
		return err
	}
	var task plan.Task
	if err := value.Get(&task); err != nil {
		return err
	}
	failpoint.Hit("record.complete.before")
	if err := a.store.CompleteTask(ctx, task, a.recordLimit); err != nil {
		return attempt.RetriedError(err)
	}
	failpoint.Hit("record.complete.after")
	a.forget(in.Task)
	return nil
}
