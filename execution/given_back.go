package execution

import (
	"context"
	"errors"
	"slices"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// HasGivenBack reports whether the release that made a claim has ended and given back all that it had borrowed, or the
// newest release of the same name has: what an object still has of it was brought back by another client. It is false
// for a release that runs, that was killed, that left a split in place, or that Temporal does not know.
func HasGivenBack(ctx context.Context, from Describer, claim string) (bool, error) {
	holder := workload.ParseHolder(claim)
	id, finished := holder.WorkflowID, GaveBack
	if task, of := plan.TaskOfWorkflow(id); of {
		id, finished = plan.WorkflowID(task), []string{string(plan.TaskSucceeded)}
	}
	described, err := Describe(ctx, from, id, "")
	if run := holder.RunID; IsOpen(described) && run != "" && !HasRun(described, run) {
		described, err = Describe(ctx, from, id, run)
	}
	var malformed *serviceerror.InvalidArgument // any client may have written the text of a claim
	switch {
	case errors.As(err, &malformed):
		return false, nil
	case err != nil || described == nil:
		return false, err
	}
	info := described.GetWorkflowExecutionInfo()
	return info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED && slices.Contains(finished,
		Published[string](info, workload.SearchAttributeState)), nil
}

// GaveBack are the states in which a rollout has ended and given everything back.
var GaveBack = []string{string(rollout.PhaseHealthy), string(rollout.PhaseRolledBack)}
