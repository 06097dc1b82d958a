package workflows

import (
	"encoding/json"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/workloadops"
)

// start carries out an activity beside the loop.
func (r *rolloutRun) start(a machine.Action) {
	ctx, cancel := workflow.WithCancel(r.ctx)
	running := &runningAction{action: a, cancel: cancel}
	r.running = running
	workflow.Go(ctx, func(ctx workflow.Context) {
		running.err = r.carryOutAction(ctx, running)
		running.ended = true
	})
}

func (r *rolloutRun) carryOutAction(ctx workflow.Context, running *runningAction) error {
	a, out := running.action, &running.result
	atParty, atCentre := workflow.WithActivityOptions(ctx, r.partyOptions(a)), workflow.WithActivityOptions(ctx, options(centreForever, a))
	switch a.Kind {
	case machine.ActBegin:
		return execute(atParty, rollout.ActivityBegin, a.Begin, &out.Begin)
	case machine.ActMove:
		return execute(atParty, rollout.ActivityMove, a.Move, &out.Move)
	case machine.ActRoute:
		return execute(atParty, rollout.ActivityRoute, a.Route, &out.Route)
	case machine.ActFinish:
		return execute(atParty, rollout.ActivityFinish, a.Finish, &out.Finish)
	case machine.ActHold:
		return execute(atCentre, rollout.ActivityHoldTraffic, a.Hold, &out.Hold)
	case machine.ActLeave:
		return execute(atCentre, rollout.ActivityLeaveTraffic, a.Leave, &out.Leave)
	case machine.ActAskHolder:
		return execute(atCentre, workloadops.ActivityClaimHolder, a.Holder, &out.Holder)
	default:
		return r.complete(atCentre)
	}
}

// complete writes the record. A rollout closes without its record only when that is refused for good.
func (r *rolloutRun) complete(ctx workflow.Context) error {
	spec := r.in.Spec
	err := workflow.ExecuteActivity(ctx, rollout.ActivityCompleteRollout, rollout.CompleteRequest{
		Record: r.in.Record, WorkflowID: r.info.WorkflowExecution.ID, RunID: r.info.WorkflowExecution.RunID,
		Party: spec.Workload().PartyOrDefault(), Namespace: spec.Namespace, Name: spec.Name,
	}).Get(ctx, nil)
	if err != nil {
		workflow.GetLogger(ctx).Error("the record could not be written", "record", r.in.Record, "error", err)
	}
	return err
}

// execute runs an activity and keeps its result.
func execute[Q, A any](ctx workflow.Context, name string, request *Q, result **A) error {
	var answer A
	if err := workflow.ExecuteActivity(ctx, name, *request).Get(ctx, &answer); err != nil {
		return err
	}
	*result = &answer
	return nil
}

// partyOptions are those of an operation on a party's cluster. A party that is known to be away is waited for without a limit.
func (r *rolloutRun) partyOptions(a machine.Action) workflow.ActivityOptions {
	pickUp := time.Duration(r.in.UnreachableBudgetSeconds) * time.Second
	if a.NoPickUpTimeout {
		pickUp = 0
	}
	return options(partyRun(r.in.Queue, pickUp), a)
}

// options are those of an action. What is stopped ends before anything else begins: two writers of one workload would undo each other.
func options(o workflow.ActivityOptions, a machine.Action) workflow.ActivityOptions {
	o.Summary, o.WaitForCancellation = cell(a.Summary, maxSummary), true
	return o
}

// maxSummary is the longest summary that Temporal's UI shows, in bytes.
const maxSummary = 200

// rolloutFailure is an activity's error in the machine's terms.
func rolloutFailure(a *runningAction, party string) machine.Failure {
	details := detailsOf(a.err)
	f := machine.Failure{Kind: kindOf(a.err), Message: message(a.err), Holder: details.Holder, SpentSeconds: details.SpentSeconds}
	if trouble, spent := systemTrouble(a.err, party); trouble != "" {
		f.Message, f.SpentSeconds = trouble, spent
		if !f.Kind.System() {
			f.Kind = failure.Unreachable
		}
	}
	if temporal.IsCanceledError(a.err) { // somebody else than the machine stopped it: it is done again
		f.Kind = failure.Unreachable
	}
	var numbers rollout.MoveResult
	told := f.Kind == failure.WorkloadFailed || f.Kind == failure.Drift
	if told && len(details.Data) > 0 && json.Unmarshal(details.Data, &numbers) == nil {
		f.Move = &numbers
	}
	return f
}
