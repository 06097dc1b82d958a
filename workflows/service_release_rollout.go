package workflows

import (
	"fmt"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// rollOut releases a workload by a Rollout, a separate workflow that users approve and control like any other. While it
// waits for a user it adds nothing to this workflow's history.
func (r *itemRun) rollOut(ctx workflow.Context, i int) (workload.Result, error) {
	spec := r.loaded.RollOut.Spec(r.orders[i].Request.Workload, r.orders[i].Request.Change())
	found, served, err := r.checkRollout(ctx, i, spec)
	switch {
	case err != nil:
		return workload.Result{}, err
	case found.AlreadyDeployed:
		return workload.Result{Message: "nothing to do: " + r.orders[i].Request.Workload.String() +
			" already has this version"}, nil
	case len(found.Refusals) > 0:
		return workload.Result{}, temporal.NewNonRetryableApplicationError(refusals(found.Refusals),
			string(failure.Refused), nil)
	}
	recorded, err := r.recordRollout(ctx, spec)
	if err != nil {
		return workload.Result{}, err
	}
	if r.stopTo != nil {
		r.givenUp[i] = true
		return workload.Result{}, r.withdraw(ctx, recorded.Record, "the task was stopped before the rollout began",
			failure.WorkloadFailed)
	}
	input := r.rolloutInput(i, spec, recorded)
	input.Served = served
	return r.awaitRollout(ctx, i, input)
}

func refusals(all []rollout.Refusal) string {
	reasons := make([]string, len(all))
	for i, refusal := range all {
		reasons[i] = refusal.Reason
	}
	return strings.Join(reasons, "; ")
}

// checkRollout checks whether the workload already has the new version, and whether it can be rolled out. The version
// was not known when the plan was executed. served is the version that the newest Healthy record shows, nil unless no
// pod shows which one is stable.
func (r *itemRun) checkRollout(ctx workflow.Context, i int, spec strategy.Spec) (found rollout.PreflightResult,
	served *strategy.Revision, err error) {
	request := rollout.PreflightRequest{Strategy: spec.Strategy, Change: spec.Change,
		Subject: rollout.Subject{Workload: spec.Workload(), Name: spec.Name,
			Claim: workload.Holder{Engine: r.in.Engine}.String(), DeadlineSeconds: spec.Policy.StepDeadlineSeconds,
			UnreachableBudgetSeconds: r.in.UnreachableBudgetSeconds}}
	if found, err = r.askParty(ctx, i, request); err != nil || !found.StableUnknown {
		return found, nil, err
	}
	if served, err = r.lastHealthy(ctx, spec); err != nil || served == nil {
		return found, nil, err
	}
	request.Served = served
	found, err = r.askParty(ctx, i, request)
	return found, served, err
}

// askParty asks the party of a workload about its rollout.
func (r *itemRun) askParty(ctx workflow.Context, i int,
	request rollout.PreflightRequest) (found rollout.PreflightResult, err error) {
	order := r.orders[i]
	err = r.retryUntilResumed(ctx, partyName(order.Request), func(int64) error {
		var results []rollout.PreflightResult
		err := perform(withActivity(ctx, partyQuery(order.Queue, r.budget),
			"check whether "+order.Request.Workload.String()+" already has the new version"),
			rollout.ActivityPreflight, rollout.PreflightRequests{Retry: true,
				Rollouts: []rollout.PreflightRequest{request}}, &results)
		if err != nil {
			return err
		}
		if found = results[0]; found.Unchecked != "" {
			return temporal.NewNonRetryableApplicationError(found.Unchecked, string(failure.Unreachable), nil)
		}
		return nil
	})
	return found, err
}

// homeCluster names the engine's home cluster in messages.
const homeCluster = "the engine's home cluster"

// lastHealthy asks which version the newest Healthy record of a rollout shows; nil if there is none.
func (r *itemRun) lastHealthy(ctx workflow.Context, spec strategy.Spec) (served *strategy.Revision, err error) {
	err = r.retryUntilResumed(ctx, homeCluster, func(int64) error {
		return perform(withActivity(ctx, centreWithin(r.budget), "find the last version that was Healthy"),
			rollout.ActivityLastHealthy, spec, &served)
	})
	return served, err
}

func (r *itemRun) recordRollout(ctx workflow.Context, spec strategy.Spec) (recorded rollout.Recorded, err error) {
	err = r.retryUntilResumed(ctx, homeCluster, func(int64) error {
		return perform(withActivity(ctx, centreWithin(r.budget), "write the record of the rollout"),
			rollout.ActivityRecordRollout,
			rollout.RecordRequest{Task: r.in.Task, Item: r.in.Item, Spec: spec}, &recorded)
	})
	return recorded, err
}

// withdraw deletes the record of a rollout that was not started, and returns the error with the reason.
func (r *itemRun) withdraw(ctx workflow.Context, record, why string, kind failure.Kind) error {
	err := perform(withActivity(ctx, centreForever, "delete the record of the rollout"),
		rollout.ActivityWithdrawRollout, rollout.WithdrawRequest{Record: record}, nil)
	if err != nil {
		workflow.GetLogger(ctx).Error("could not delete the record of a rollout that was not started", "record",
			record, "error", err)
	}
	return temporal.NewNonRetryableApplicationError(why, string(kind), nil)
}

// awaitRollout starts the Rollout and waits for its end.
func (r *itemRun) awaitRollout(ctx workflow.Context, i int, input RolloutInput) (workload.Result, error) {
	spec, record := input.Spec, input.Record
	child := workflow.ExecuteChildWorkflow(rolloutOptions(ctx, spec, record), TypeRollout, input)
	view := &plan.RolloutStatus{Party: spec.Party, Namespace: spec.Namespace, Name: spec.Name, Record: record,
		Steps: len(spec.Strategy.Steps)}
	if err := child.GetChildWorkflowExecution().Get(ctx, nil); err != nil {
		why, kind := fmt.Sprintf("%s could not be started: %s", view, message(err)), failure.Conflict
		if temporal.IsWorkflowExecutionAlreadyStartedError(err) {
			why, kind = fmt.Sprintf("%s runs already, and was not started by this task: wait until it has ended, or "+
				"stop it, and run the task again", view), failure.Claimed
		}
		return workload.Result{}, r.withdraw(ctx, record, why, kind)
	}
	r.rollouts[i] = child
	w := &r.statuses[i]
	w.Rollout, w.Message = view, "released by "+view.String()
	r.reportRollouts(view)
	if r.stopTo != nil { // stopped while the rollout was being started
		r.stopRollout(ctx, i)
	}
	var result RolloutResult
	err := child.Get(ctx, &result)
	r.rollouts[i] = nil
	return r.rolloutOutcome(i, result, err)
}

// reportRollouts informs the task, once, that rollouts release the item.
func (r *itemRun) reportRollouts(view *plan.RolloutStatus) {
	r.reason = fmt.Sprintf("released by %s, which may wait for an approval", view)
	if len(r.orders) > 1 {
		r.reason = fmt.Sprintf("released by rollouts of its %d workloads, which may wait for approvals", len(r.orders))
	}
	if !r.reportedRollouts {
		r.reportedRollouts = true
		r.report(false, r.reason)
	}
	r.show()
}

func rolloutOptions(ctx workflow.Context, spec strategy.Spec, record string) workflow.Context {
	return workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID: rollout.WorkflowID(spec.Party, spec.Namespace, spec.Name), TaskQueue: QueueEngine,
		ParentClosePolicy:     parentClosePolicy,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		TypedSearchAttributes: RolloutAttributes(spec), Memo: map[string]any{MemoRecord: record},
		StaticSummary: fmt.Sprintf("%s %s/%s, released by a plan", spec.WorkloadRef.Kind, spec.Namespace,
			spec.WorkloadRef.Name),
	})
}

func (r *itemRun) rolloutInput(i int, spec strategy.Spec, recorded rollout.Recorded) RolloutInput {
	return RolloutInput{Queue: r.orders[i].Queue, Engine: r.in.Engine, Request: machine.Request{Spec: spec,
		Record: recorded.Record, CreatedAt: recorded.CreatedAt, Actor: recorded.Actor, Reason: recorded.Reason,
		Via: recorded.Via, Revision: recorded.Revision, Task: r.in.Task,
		UnreachableBudgetSeconds: r.in.UnreachableBudgetSeconds}}
}

// rolloutOutcome converts the outcome of a workload's rollout. If the new version is not everywhere, the service has
// failed; the task fails only if it did not request the stop itself.
func (r *itemRun) rolloutOutcome(i int, end RolloutResult, err error) (workload.Result, error) {
	view := r.statuses[i].Rollout
	view.Phase = string(end.Phase)
	if err != nil {
		view.Phase = string(rollout.PhaseFailed)
		return workload.Result{}, temporal.NewNonRetryableApplicationError(fmt.Sprintf("%s: %s", view, message(err)),
			string(failure.WorkloadFailed), nil)
	}
	ours := end.Record == view.Record
	changed := end.Phase == rollout.PhaseHealthy || end.Phase == rollout.PhaseCancelled
	switch {
	case !ours:
		return workload.Result{}, rolloutFailed(
			fmt.Sprintf("%s was superseded: another release took its place, and is %s", view, end.Phase), end, changed)
	case end.Phase == rollout.PhaseHealthy:
		return workload.Result{Message: end.Reason, Changed: true, Change: end.Change}, nil
	}
	r.givenUp[i] = r.stopTo != nil
	return workload.Result{}, rolloutFailed(fmt.Sprintf("%s is %s: %s", view, end.Phase, end.Reason), end, changed)
}

func rolloutFailed(why string, end RolloutResult, changed bool) error {
	details := failure.Details{}
	if changed {
		details.Effect = &failure.Effect{Changed: true, Change: end.Change}
	}
	return temporal.NewNonRetryableApplicationError(why, string(failure.WorkloadFailed), nil, details)
}

// stopRollouts stops the running rollouts as the task requested. No further workload begins.
func (r *itemRun) stopRollouts(ask RolloutVerbRequest) {
	r.stopTo = &ask
	for i := range r.rollouts {
		r.stopRollout(r.ctx, i)
	}
}

// stopRollout signals a rollout. If it has closed meanwhile, the signal is lost and its result is already on its way.
func (r *itemRun) stopRollout(ctx workflow.Context, i int) {
	if child := r.rollouts[i]; child != nil {
		child.SignalChildWorkflow(ctx, string(rollout.VerbStop), *r.stopTo)
	}
}
