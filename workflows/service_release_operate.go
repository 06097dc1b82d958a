package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workload"
)

// releaseWorkload runs the operation on one workload and copies the result into its status.
func (r *itemRun) releaseWorkload(ctx workflow.Context, i int) {
	w := &r.statuses[i]
	r.show()
	result, err := r.operate(ctx, i)
	if err != nil {
		w.State, w.Message = plan.ItemFailed, message(err)
		if done := detailsOf(err).Effect; done != nil {
			w.Changed, w.Change = done.Changed, done.Change
		}
	} else {
		w.State, w.Message, w.Changed, w.Change = plan.ItemSucceeded, result.Message, result.Changed, result.Change
	}
	r.show()
}

// operate runs the operation until it ends. It takes over claims of dead workflows, and survives interruptions.
func (r *itemRun) operate(ctx workflow.Context, i int) (workload.Result, error) {
	if r.loaded.RollOut != nil {
		result, err := r.rollOut(ctx, i)
		if errors.Is(err, errAbandoned) { // nothing is borrowed yet
			r.givenUp[i] = true
			err = newFailure(failure.WorkloadFailed,
				r.orders[i].Request.Workload.String()+": given up while interrupted, before its rollout began")
		}
		return result, err
	}
	order := r.orders[i]
	request := order.Request
	request.ReportBlocked = true
	summary := fmt.Sprintf("%s %s", request.Operation, request.Workload)
	var result workload.Result
	err := r.retryUntilResumed(ctx, partyName(request), func(spent int64) error {
		request.SpentSeconds = max(request.SpentSeconds, spent)
		return r.runOperation(ctx, order.Queue, &request, summary, &result)
	})
	switch {
	case errors.Is(err, errAbandoned):
		r.givenUp[i] = true
		if restored := r.restore(ctx, order, request, summary); restored != nil {
			return result, restored
		}
		return result, newFailure(failure.WorkloadFailed,
			request.Workload.String()+": given up while interrupted; borrowed settings are restored")
	case detailsOf(err).RestorePending:
		if restored := r.restore(ctx, order, request, summary); restored != nil {
			return result, restored
		}
	}
	return result, err
}

// runOperation runs the operation. It retries once if its queue had no poller during an outage of the engine, and takes
// over a dead workflow's claim.
func (r *itemRun) runOperation(
	ctx workflow.Context, queue string, request *operation.Request, summary string, result *workload.Result,
) error {
	askedAgain, blocked := false, false
	pickUp := r.budget
	for {
		err := perform(withActivity(ctx, partyRun(queue, pickUp), summary), operation.ActivityRun, *request, result)
		switch {
		case isScheduleToStart(err) && !askedAgain:
			// This timeout also elapses while the engine itself is down: retry once, now that it runs.
			askedAgain, pickUp = true, min(r.budget, secondPickUp)
		case kindOf(err) == failure.Claimed && request.TakeOver == "":
			answer, asked := r.claimHolder(ctx, detailsOf(err).Holder)
			if asked != nil {
				return asked
			}
			if !answer.Dead {
				return newFailure(failure.Claimed, message(err)+" ("+answer.Reason+")")
			}
			request.TakeOver = detailsOf(err).Holder
		case err == nil && result.Blocked != "":
			r.reportBlocked(request.Workload.String() + ": " + result.Blocked)
			request.ReportBlocked, request.SpentSeconds = false, max(request.SpentSeconds, result.SpentSeconds)
			*result, blocked = workload.Result{}, true
		default:
			if blocked && err == nil {
				r.reportUnblocked()
			}
			return err
		}
	}
}

// secondPickUp is how long a party's queue may be without a worker once the engine itself is known to run.
const secondPickUp = 20 * time.Second

// claimHolder asks the centre whether the workflow that holds the workload's claim is dead.
func (r *itemRun) claimHolder(ctx workflow.Context, claim string) (workload.ClaimHolderResult, error) {
	var answer workload.ClaimHolderResult
	err := perform(withActivity(ctx, centreWithin(r.budget), "ask whether the workload's holder is alive"),
		workload.ActivityClaimHolder, workload.ClaimHolderRequest{Claim: claim, Task: r.in.Task, Plan: r.in.Plan},
		&answer)
	return answer, asSystemError(err)
}

// restore restores what an operation borrowed. It never gives up, however long the party is unreachable or its cluster
// refuses. After the first failure is reported, Temporal's server retries the activity, which costs no history.
func (r *itemRun) restore(ctx workflow.Context, order operation.WorkloadOrder, request operation.Request,
	summary string) error {
	r.say("waits until " + partyName(request) + " answers, to restore borrowed settings")
	restore := operation.RestoreRequest{Request: request}
	options := partyRun(order.Queue, 0) // it waits for the party without a limit
	options.HeartbeatTimeout = 0
	for {
		err := perform(withActivity(ctx, options, "restore after "+summary), operation.ActivityRestore, restore, nil)
		if err == nil {
			return nil
		}
		if restore.Persist { // a user has reset or failed the activity: the restore is still pending
			if err := sleep(ctx, operation.RestoreRetryInterval, "before the next restore attempt"); err != nil {
				return err
			}
		}
		restore.Persist = true
		r.say(fmt.Sprintf("cannot restore borrowed settings yet: %s; retried every %s, see Pending Activities "+
			"for the latest attempt", message(err), operation.RestoreRetryInterval))
	}
}

var errAbandoned = errors.New("given up while interrupted")

// retryUntilResumed calls do until it succeeds or fails permanently. On system trouble it reports to the task and waits
// for resume without a limit. spentSeconds is how much of its deadline the operation has used so far.
func (r *itemRun) retryUntilResumed(ctx workflow.Context, what string, do func(spentSeconds int64) error) error {
	var spent int64
	for {
		err := do(spent)
		trouble, used := systemTrouble(err, what)
		if trouble == "" {
			return err
		}
		spent = used
		round := r.round
		r.held++
		r.report(true, trouble)
		r.show()
		if err := workflow.Await(ctx, func() bool { return r.abandoned || r.round > round }); err != nil {
			return err
		}
		r.held--
		if r.abandoned {
			return errAbandoned
		}
		if r.held == 0 {
			r.report(false, "continues after an interruption")
		}
		r.show()
	}
}

// report informs the task. If the task was terminated, nothing is lost: a user can send resume to the item directly.
func (r *itemRun) report(interrupted bool, reason string) {
	r.reason = reason
	r.signalTask(ItemSignal{Item: r.in.Item, Interrupted: interrupted, Reason: reason})
}

// reportBlocked shows that pods of the item are not created or do not start, and informs the task.
func (r *itemRun) reportBlocked(reason string) {
	r.say(reason)
	r.signalTask(ItemSignal{Item: r.in.Item, Blocked: true, Reason: reason})
}

// reportUnblocked informs the task that they have come.
func (r *itemRun) reportUnblocked() {
	r.signalTask(ItemSignal{Item: r.in.Item, Reason: "being released"})
}

func (r *itemRun) signalTask(report ItemSignal) {
	if parent := workflow.GetInfo(r.ctx).ParentWorkflowExecution; parent != nil {
		workflow.SignalExternalWorkflow(r.ctx, parent.ID, parent.RunID, SignalItem, report)
	}
}

func partyName(request operation.Request) string {
	return "party " + request.Workload.PartyOrDefault()
}
