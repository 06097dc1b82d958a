package centre

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.temporal.io/api/serviceerror"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/store"
)

// ClaimHolder reports whether the workflow that holds a workload is dead: closed, deleted, or one of an interrupted
// task that the requesting task of the same plan has replaced. Only then may its claim be taken over. The workflows of
// another engine are not visible here: they count as alive.
func (a *Activities) ClaimHolder(ctx context.Context, in workload.ClaimHolderRequest) (workload.ClaimHolderResult,
	error) {
	holder := workload.ParseHolder(in.Claim)
	engine, err := a.store.Engine(ctx)
	if err != nil {
		return workload.ClaimHolderResult{}, attempt.RetriedError(err)
	}
	if holder.Engine.Differs(engine) {
		return workload.ClaimHolderResult{Reason: workload.ForeignReason(holder)}, nil
	}
	if namespace, name, ok := v1alpha1.ParseTrafficClaim(in.Claim); ok {
		return a.trafficHolder(ctx, namespace, name)
	}
	alive, reason, err := a.alive(ctx, holder)
	if err != nil {
		return workload.ClaimHolderResult{}, err
	}
	if !alive {
		ended, err := a.ended(ctx, in.Claim)
		return workload.ClaimHolderResult{Dead: err == nil, Reason: reason, Ended: ended}, err
	}
	return a.interruptedHolder(ctx, holder, reason, in)
}

// ended reports whether the release that made a claim, or a later one of the same rollout, has given back all that it
// had borrowed. A release that left a split in place has not; the next one does.
func (a *Activities) ended(ctx context.Context, claim string) (bool, error) {
	ended, err := execution.HasGivenBack(ctx, a.temporal, claim)
	if err != nil || ended {
		return ended, err
	}
	holder := workload.ParseHolder(claim)
	parts := strings.Split(holder.WorkflowID, "/")
	if len(parts) != 4 || rollout.WorkflowID(parts[1], parts[2], parts[3]) != holder.WorkflowID {
		return false, nil
	}
	records, err := a.store.ListRecords(ctx, store.RolloutLabels(parts[1], parts[2], parts[3])) // newest first
	if err != nil {
		return false, attempt.RetriedError(err)
	}
	for _, r := range records {
		if r.Outcome == nil {
			continue
		}
		if r.Outcome.RunID == holder.RunID {
			return ended || slices.Contains(execution.GaveBack, r.Outcome.State), nil
		}
		if !ended {
			if ended, err = a.restoredAll(ctx, r); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// restoredAll reports whether a release has given back what earlier ones of its name had borrowed, too: it is Healthy,
// or was rolled back after it had begun. listed has no body.
func (a *Activities) restoredAll(ctx context.Context, listed *v1alpha1.ReleaseRecord) (bool, error) {
	switch rolledBack := listed.Outcome.State == string(rollout.PhaseRolledBack); {
	case listed.Outcome.State == string(rollout.PhaseHealthy), rolledBack && store.IsRestoreOnly(listed):
		return true, nil
	case !rolledBack:
		return false, nil
	}
	record, err := a.store.GetRelease(ctx, listed.Name)
	if failure.Is(err, failure.NotFound) {
		return false, nil // it was pruned in the meantime
	}
	if err != nil {
		return false, attempt.RetriedError(err)
	}
	var ended rollout.Status
	if err := v1alpha1.DecodeBody(record.Outcome.Body, &ended); err != nil {
		return false, err
	}
	return ended.StableRevision != "", nil // known once the workload is claimed
}

// alive reports whether the holder of a claim still runs in Temporal.
func (a *Activities) alive(ctx context.Context, holder workload.Holder) (alive bool, reason string, err error) {
	described, err := execution.Describe(ctx, a.temporal, holder.WorkflowID, "")
	var malformed *serviceerror.InvalidArgument // any client may have written the text of a claim
	switch {
	case err == nil && described == nil || errors.As(err, &malformed):
		return false, fmt.Sprintf("workflow %s no longer exists", holder.WorkflowID), nil
	case err != nil:
		return false, "", err
	case !execution.HasRun(described, holder.RunID) || !execution.IsOpen(described):
		return false, fmt.Sprintf("workflow %s is closed", holder.WorkflowID), nil
	}
	return true, fmt.Sprintf("workflow %s is still running: wait for it, or stop it", holder.WorkflowID), nil
}

// trafficHolder answers for the claim of a TrafficRouting, which is alive as long as one of its holders is.
func (a *Activities) trafficHolder(ctx context.Context, namespace, name string) (workload.ClaimHolderResult, error) {
	object := store.TrafficObject(namespace, name)
	found, err := a.store.GetTrafficRouting(ctx, namespace, name)
	if failure.Is(err, failure.NotFound) {
		return workload.ClaimHolderResult{Dead: true, Reason: object + " no longer exists"}, nil
	}
	if err != nil {
		return workload.ClaimHolderResult{}, attempt.RetriedError(err)
	}
	holders, err := a.livingHolders(ctx, found.Status.Holders, "")
	if err != nil {
		return workload.ClaimHolderResult{}, err
	}
	if len(holders) == 0 {
		return workload.ClaimHolderResult{Dead: true, Reason: "no rollout holds " + object + " any more"}, nil
	}
	return workload.ClaimHolderResult{Reason: fmt.Sprintf("%s routes by it for %s: wait for it, or stop it", object,
		workflowsOf(holders))}, nil
}

// livingHolders returns the holders whose workflow still runs, and the requesting one if it is a holder. Holders of
// other engines count as alive, since they are not visible here.
func (a *Activities) livingHolders(ctx context.Context, holders []string, requesting string) ([]string, error) {
	engine, err := a.store.Engine(ctx)
	if err != nil {
		return nil, err
	}
	living := []string{}
	for _, claim := range holders {
		if (claim == "" || claim != requesting) && !workload.ParseHolder(claim).Engine.Differs(engine) {
			alive, _, err := a.alive(ctx, workload.ParseHolder(claim))
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
		names[i] = workload.ParseHolder(claim).WorkflowID
	}
	return strings.Join(names, ", ")
}

// interruptedHolder checks an open holder: it counts as dead if its task is interrupted and the requesting task has
// replaced it.
func (a *Activities) interruptedHolder(ctx context.Context, holder workload.Holder, reason string,
	in workload.ClaimHolderRequest) (workload.ClaimHolderResult, error) {
	alive := workload.ClaimHolderResult{Reason: reason}
	other, ok := plan.TaskOfWorkflow(holder.WorkflowID)
	if !ok || other == in.Task {
		return alive, nil
	}
	otherPlan, err := a.store.PlanOfTask(ctx, other)
	if err != nil {
		return workload.ClaimHolderResult{}, attempt.RetriedError(err)
	}
	live, _, err := a.store.LiveTask(ctx, in.Plan)
	if err != nil {
		return workload.ClaimHolderResult{}, attempt.RetriedError(err)
	}
	if otherPlan != in.Plan || live != in.Task {
		return alive, nil
	}
	described, err := execution.Describe(ctx, a.temporal, plan.WorkflowID(other), "")
	if err != nil {
		return workload.ClaimHolderResult{}, err
	}
	state := execution.Published[string](described.GetWorkflowExecutionInfo(), workload.SearchAttributeState)
	if execution.IsOpen(described) && state != string(plan.TaskInterrupted) {
		return alive, nil
	}
	return workload.ClaimHolderResult{Dead: true,
		Reason: fmt.Sprintf("task %s is interrupted and task %s has taken its place", other, in.Task)}, nil
}
