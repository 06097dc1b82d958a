package centre

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/trafficrouting"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/store"
)

// holdRetry is the retry interval of a rollout that waits for another one to restore the routes.
const holdRetry = 2 * time.Second

// HoldTraffic records a rollout as a holder of a TrafficRouting and returns the routing's content. Holders whose
// workflow is dead are dropped. While the last holder restores the routes, the next one waits; at its deadline it fails
// with WorkloadFailed.
func (a *Activities) HoldTraffic(ctx context.Context, in rollout.HoldTrafficRequest) (rollout.HoldTrafficResult,
	error) {
	details, stop := heartbeat.Start(ctx, workload.Progress{})
	succeeded := false
	defer func() { stop(succeeded) }()
	var result rollout.HoldTrafficResult
	err := a.updateTraffic(ctx, in, func(t *v1alpha1.TrafficRouting) error {
		shared, err := sharedTraffic(t)
		if err != nil {
			return err
		}
		engine, err := a.store.Engine(ctx)
		if err != nil {
			return err
		}
		result = rollout.HoldTrafficResult{Shared: shared, Claim: v1alpha1.TrafficClaim(in.Namespace, in.Name, engine)}
		if other := trafficrouting.HeldByAnother(t.Status.Holders, engine); other != "" {
			return failure.New(failure.Refused, "%s is held by %s", store.TrafficObject(in.Namespace, in.Name), other)
		}
		others := without(t.Status.Holders, in.Holder)
		switch held := len(others) < len(t.Status.Holders); {
		case t.Deleting && !held:
			return failure.New(failure.Refused, "%s is being deleted: create it again after it is deleted, then "+
				"start the rollout again", store.TrafficObject(in.Namespace, in.Name))
		case t.Status.Phase == v1alpha1.TrafficFinalizing && len(others) > 0:
			return &failure.Error{Kind: failure.NotReady, RetryAfter: holdRetry,
				Message: fmt.Sprintf("%s gives its routes back for %s: this rollout begins after that",
					store.TrafficObject(in.Namespace, in.Name), workflowsOf(others))}
		case held && t.Status.Phase != v1alpha1.TrafficFinalizing:
			return nil
		}
		if err := a.store.GuardTraffic(ctx, t, true); err != nil {
			return err
		}
		t.Status.Holders = append(others, in.Holder)
		t.Status.Phase, t.Status.Message = trafficrouting.HeldStatus(t, workflowsOf(t.Status.Holders))
		return a.writeTraffic(ctx, t)
	})
	if err != nil {
		return rollout.HoldTrafficResult{}, attempt.RetriedError(enforceDeadline(details, in, err))
	}
	succeeded = true
	return result, nil
}

// enforceDeadline counts the time of waiting for other holders, and ends the wait at its deadline. Time in which the
// home cluster or Temporal does not answer is not counted.
func enforceDeadline(details *heartbeat.Details[workload.Progress], in rollout.HoldTrafficRequest, err error) error {
	now, deadline := time.Now(), time.Duration(in.DeadlineSeconds)*time.Second
	var f *failure.Error
	switch {
	case !errors.As(err, &f) || f.Kind.System():
		details.Note(func(p *workload.Progress) { p.RecordFailure(now) })
		return err
	case f.Kind != failure.NotReady:
		return err
	}
	details.Note(func(p *workload.Progress) {
		p.RecordRead(now)
		p.RecordReachable()
		p.Message = f.Message
	})
	if waited := details.Progress().Elapsed(); deadline > 0 && waited >= deadline {
		return failure.New(failure.WorkloadFailed, "waited for %d s in vain: %s", int64(waited/time.Second), f.Message)
	}
	return err
}

// LeaveTraffic removes a holder. The last one stays, in phase Finalizing, until it has restored the routes and reports
// that with Restored.
func (a *Activities) LeaveTraffic(ctx context.Context, in rollout.LeaveTrafficRequest) (rollout.LeaveTrafficResult,
	error) {
	engine, err := a.store.Engine(ctx)
	if err != nil {
		return rollout.LeaveTrafficResult{}, attempt.RetriedError(err)
	}
	result := rollout.LeaveTrafficResult{Claim: v1alpha1.TrafficClaim(in.Namespace, in.Name, engine)}
	err = a.updateTraffic(ctx, in.HoldTrafficRequest, func(t *v1alpha1.TrafficRouting) error {
		others := without(t.Status.Holders, in.Holder)
		if len(others) == len(t.Status.Holders) {
			return nil // it has left before
		}
		if len(others) > 0 || in.Restored {
			return a.removeHolder(ctx, t, others)
		}
		shared, err := sharedTraffic(t)
		if err != nil {
			return err
		}
		result.Restore, result.Shared = true, shared
		if t.Status.Phase == v1alpha1.TrafficFinalizing {
			return nil
		}
		t.Status.Phase, t.Status.Message = v1alpha1.TrafficFinalizing,
			workflowsOf([]string{in.Holder})+" gives the routes back"
		return a.writeTraffic(ctx, t)
	})
	if err != nil && !in.Restored && failure.Is(err, failure.NotFound) {
		// The TrafficRouting was force-deleted although it was held: the caller restores what it has recorded itself.
		result.Restore, result.Shared = true, rollout.SharedTraffic{Name: in.Name}
		return result, nil
	}
	return result, attempt.RetriedError(failure.Ignore(err, failure.NotFound))
}

// removeHolder writes the remaining holders of a TrafficRouting; without any it is idle and may be deleted.
func (a *Activities) removeHolder(ctx context.Context, t *v1alpha1.TrafficRouting, holders []string) error {
	t.Status.Holders = holders
	t.Status.Phase, t.Status.Message = trafficrouting.HeldStatus(t, workflowsOf(holders))
	if len(holders) == 0 {
		t.Status.Phase, t.Status.Message = trafficrouting.IdleStatus()
	}
	if err := a.writeTraffic(ctx, t); err != nil {
		return err
	}
	if len(holders) > 0 {
		return nil
	}
	return failure.Ignore(a.store.GuardTraffic(ctx, t, false), failure.NotFound) // a deleted one only waited for this
}

func (a *Activities) writeTraffic(ctx context.Context, t *v1alpha1.TrafficRouting) error {
	return failpoint.Around("traffic.hold", func() error { return a.store.SetTrafficStatus(ctx, t) })
}

// updateTraffic changes a TrafficRouting, without its dead holders, and repeats the change when another client wrote it
// first.
func (a *Activities) updateTraffic(ctx context.Context, in rollout.HoldTrafficRequest,
	do func(t *v1alpha1.TrafficRouting) error) error {
	return retryConflicts(store.TrafficObject(in.Namespace, in.Name), func() error {
		t, err := a.store.GetTrafficRouting(ctx, in.Namespace, in.Name)
		if err != nil {
			return err
		}
		if t.Status.Holders, err = a.livingHolders(ctx, t.Status.Holders, in.Holder); err != nil {
			return err
		}
		return do(t)
	})
}

func without(holders []string, holder string) []string {
	return slices.DeleteFunc(slices.Clone(holders), func(claim string) bool { return claim == holder })
}

func sharedTraffic(t *v1alpha1.TrafficRouting) (rollout.SharedTraffic, error) {
	shared, wrong := trafficrouting.DecodeSpec(t.Name, t.Spec)
	if len(wrong) > 0 {
		return shared, failure.New(failure.Refused, "%s is invalid, correct it: %v",
			store.TrafficObject(t.Namespace, t.Name), wrong)
	}
	return shared, nil
}

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
	if err != nil || !alive {
		return workload.ClaimHolderResult{Dead: err == nil, Reason: reason}, err
	}
	return a.interruptedHolder(ctx, holder, reason, in)
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
