package execution

import (
	"context"
	"errors"
	"slices"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// HasGivenBack reports whether the release that made a claim has ended and given back all that it had borrowed, or the
// newest release of the same name has: what an object still has of it may be a copy that another client has brought
// back. The caller checks that another client wrote it, since a name may have had another workload before. It is false
// for a release that runs, that was killed, that left a split in place, or that Temporal does not know.
func HasGivenBack(ctx context.Context, from Describer, claim string) (bool, error) {
	holder := workload.ParseHolder(claim)
	id, finished := holder.WorkflowID, GaveBack
	if task, of := plan.TaskOfWorkflow(id); of {
		id, holder.RunID, finished = plan.WorkflowID(task), "", []string{string(plan.TaskSucceeded)}
	}
	described, err := Describe(ctx, from, id, "")
	if err == nil && described != nil && !HasRun(described, holder.RunID) {
		if restoredAll(described) {
			return true, nil
		}
		described, err = Describe(ctx, from, id, holder.RunID)
	}
	var malformed *serviceerror.InvalidArgument // any client may have written the text of a claim
	switch {
	case errors.As(err, &malformed):
		return false, nil
	case err != nil || described == nil:
		return false, err
	}
	return endedAs(described, finished...), nil
}

// restoredAll reports whether a release has ended after it gave back what earlier ones of its name had borrowed, too.
// One that was rolled back may have ended before it touched the workload.
func restoredAll(described *workflowservice.DescribeWorkflowExecutionResponse) bool {
	_, restores := described.GetWorkflowExecutionInfo().GetMemo().GetFields()[rollout.MemoRestoreOnly]
	return endedAs(described, string(rollout.PhaseHealthy)) ||
		restores && endedAs(described, string(rollout.PhaseRolledBack))
}

// endedAs reports whether a workflow has completed in one of these states.
func endedAs(described *workflowservice.DescribeWorkflowExecutionResponse, states ...string) bool {
	info := described.GetWorkflowExecutionInfo()
	return info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED && slices.Contains(states,
		Published[string](info, workload.SearchAttributeState))
}

// GaveBack are the states in which a rollout has ended and given everything back that it had borrowed.
var GaveBack = []string{string(rollout.PhaseHealthy), string(rollout.PhaseRolledBack)}
