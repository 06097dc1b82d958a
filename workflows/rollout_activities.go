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
	a := running.action
	switch a.Kind {
	case machine.ActBegin:
		return execute(ctx, r.partyOptions(a), rollout.ActivityBegin, *a.Begin, &running.result.Begin)
	case machine.ActMove:
		return execute(ctx, r.partyOptions(a), rollout.ActivityMove, *a.Move, &running.result.Move)
	case machine.ActRoute:
		return execute(ctx, r.partyOptions(a), rollout.ActivityRoute, *a.Route, &running.result.Route)
	case machine.ActFinish:
		return execute(ctx, r.partyOptions(a), rollout.ActivityFinish, *a.Finish, &running.result.Finish)
	case machine.ActHold:
		return execute(ctx, centreOptions(a), rollout.ActivityHoldTraffic, *a.Hold, &running.result.Hold)
	case machine.ActLeave:
		return execute(ctx, centreOptions(a), rollout.ActivityLeaveTraffic, *a.Leave, &running.result.Leave)
	case machine.ActAskHolder:
		return execute(ctx, centreOptions(a), workloadops.ActivityClaimHolder, *a.Holder, &running.result.Holder)
	default:
		return r.complete(ctx, a)
	}
}

// complete writes the record. A rollout closes without its record only when that is refused for good.
func (r *rolloutRun) complete(ctx workflow.Context, a machine.Action) error {
	spec := r.in.Spec
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, centreOptions(a)), rollout.ActivityCompleteRollout, rollout.CompleteRequest{
		Record: r.in.Record, WorkflowID: r.info.WorkflowExecution.ID, RunID: r.info.WorkflowExecution.RunID,
		Party: spec.Workload().PartyOrDefault(), Namespace: spec.Namespace, Name: spec.Name,
	}).Get(ctx, nil)
	if err != nil {
		workflow.GetLogger(ctx).Error("the record could not be written", "record", r.in.Record, "error", err)
	}
	return err
}

// execute runs an activity and keeps its result.
func execute[Q, A any](ctx workflow.Context, options workflow.ActivityOptions, name string, request Q, result **A) error {
	var answer A
	if err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), name, request).Get(ctx, &answer); err != nil {
		return err
	}
	*result = &answer
	return nil
}

// partyOptions are those of an operation on a party's cluster. What is stopped ends before anything else begins: two writers of one workload
// would undo each other. A party that is known to be away is waited for without a limit.
func (r *rolloutRun) partyOptions(a machine.Action) workflow.ActivityOptions {
	pickUp := time.Duration(r.in.UnreachableBudgetSeconds) * time.Second
	if a.NoPickUpTimeout {
		pickUp = 0
	}
	o := partyRun(r.in.Queue, pickUp)
	o.Summary, o.WaitForCancellation = summary(a.Summary), true
	return o
}

func centreOptions(a machine.Action) workflow.ActivityOptions {
	o := centreForever
	o.Summary, o.WaitForCancellation = summary(a.Summary), true
	return o
}

// maxSummary is the longest summary that Temporal's UI shows, in bytes.
const maxSummary = 200

func summary(text string) string { return cell(text, maxSummary) }

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
