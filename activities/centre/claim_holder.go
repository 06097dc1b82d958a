package centre

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/api/serviceerror"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/store"
)

// ClaimHolder says whether the workflow that holds a workload is dead: closed, forgotten, or of an interrupted task of the same plan
// that the asking task has replaced. Only then may its claim be taken over. Another engine's workflow is not known here: it counts as
// alive.
func (a *Activities) ClaimHolder(ctx context.Context, in workloadops.ClaimHolderRequest) (workloadops.ClaimHolderResult, error) {
	holder := workloadops.ParseHolder(in.Claim)
	engine, err := a.store.Engine(ctx)
	if err != nil {
		return workloadops.ClaimHolderResult{}, attempt.RetriedError(err)
	}
	if holder.Engine.Differs(engine) {
		return workloadops.ClaimHolderResult{Reason: workloadops.ForeignReason(holder)}, nil
	}
	if namespace, name, ok := v1alpha1.ParseTrafficClaim(in.Claim); ok {
		return a.trafficHolder(ctx, namespace, name)
	}
	alive, reason, err := a.alive(ctx, holder)
	if err != nil || !alive {
		return workloadops.ClaimHolderResult{Dead: err == nil, Reason: reason}, err
	}
	return a.replaced(ctx, holder, reason, in)
}

// alive asks Temporal whether the holder of a claim still runs.
func (a *Activities) alive(ctx context.Context, holder workloadops.Holder) (alive bool, reason string, err error) {
	described, err := execution.Describe(ctx, a.temporal, holder.WorkflowID, "")
	var malformed *serviceerror.InvalidArgument // a claim is text that anybody may have written
	switch {
	case err == nil && described == nil || errors.As(err, &malformed):
		return false, fmt.Sprintf("workflow %s is not known any more", holder.WorkflowID), nil
	case err != nil:
		return false, "", err
	case !execution.HasRun(described, holder.RunID) || !execution.IsOpen(described):
		return false, fmt.Sprintf("workflow %s is closed", holder.WorkflowID), nil
	}
	return true, fmt.Sprintf("workflow %s is still at work on it: wait for it, or stop it", holder.WorkflowID), nil
}

// trafficHolder is for the claim of a TrafficRouting, which lives as long as one of its holders does.
func (a *Activities) trafficHolder(ctx context.Context, namespace, name string) (workloadops.ClaimHolderResult, error) {
	object := store.TrafficObject(namespace, name)
	found, err := a.store.GetTrafficRouting(ctx, namespace, name)
	if failure.Is(err, failure.NotFound) {
		return workloadops.ClaimHolderResult{Dead: true, Reason: object + " does not exist any more"}, nil
	}
	if err != nil {
		return workloadops.ClaimHolderResult{}, attempt.RetriedError(err)
	}
	holders, err := a.living(ctx, found.Status.Holders, "")
	if err != nil {
		return workloadops.ClaimHolderResult{}, err
	}
	if len(holders) == 0 {
		return workloadops.ClaimHolderResult{Dead: true, Reason: "no rollout holds " + object + " any more"}, nil
	}
	return workloadops.ClaimHolderResult{Reason: fmt.Sprintf("%s routes by it for %s: wait for it, or stop it", object,
		workflowsOf(holders))}, nil
}

// living are the holders whose workflow still runs, and the one that asks, if it is one: it lives. So do those of other engines, for all
// that is known here.
func (a *Activities) living(ctx context.Context, holders []string, asking string) ([]string, error) {
	engine, err := a.store.Engine(ctx)
	if err != nil {
		return nil, err
	}
	living := []string{}
	for _, claim := range holders {
		if (claim == "" || claim != asking) && !workloadops.ParseHolder(claim).Engine.Differs(engine) {
			alive, _, err := a.alive(ctx, workloadops.ParseHolder(claim))
			if err != nil {
				return nil, err
			}
			if !alive {
				continue
			}
		}
		living = append(living, claim)
	}
	return living, nil
}

func workflowsOf(claims []string) string {
	names := make([]string, len(claims))
	for i, claim := range claims {
		names[i] = workloadops.ParseHolder(claim).WorkflowID
	}
	return strings.Join(names, ", ")
}

// replaced looks at a holder that is open: an interrupted task of the same plan has been replaced by the task that asks.
func (a *Activities) replaced(ctx context.Context, holder workloadops.Holder, reason string,
	in workloadops.ClaimHolderRequest) (workloadops.ClaimHolderResult, error) {
	alive := workloadops.ClaimHolderResult{Reason: reason}
	other, ok := plan.TaskOfWorkflow(holder.WorkflowID)
	if !ok || other == in.Task {
		return alive, nil
	}
	otherPlan, err := a.store.PlanOfTask(ctx, other)
	if err != nil {
		return workloadops.ClaimHolderResult{}, attempt.RetriedError(err)
	}
	live, err := a.store.LiveTask(ctx, in.Plan)
	if err != nil {
		return workloadops.ClaimHolderResult{}, attempt.RetriedError(err)
	}
	if otherPlan != in.Plan || live.Task != in.Task {
		return alive, nil
	}
	described, err := execution.Describe(ctx, a.temporal, plan.WorkflowID(other), "")
	if err != nil {
		return workloadops.ClaimHolderResult{}, err
	}
	state := execution.Published[string](described.GetWorkflowExecutionInfo(), workloadops.SearchAttributeState)
	if execution.IsOpen(described) && state != string(plan.TaskInterrupted) {
		return alive, nil
	}
	return workloadops.ClaimHolderResult{Dead: true,
		Reason: fmt.Sprintf("task %s is interrupted and task %s has taken its place", other, in.Task)}, nil
}
