package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workloadops"
)

// release brings one workload to what was asked.
func (r *itemRun) release(ctx workflow.Context, i int) {
	w := &r.works[i]
	r.show()
	result, err := r.operate(ctx, i)
	if err != nil {
		w.State, w.Message = plan.ItemFailed, message(err)
		if done := detailsOf(err).Effect; done != nil {
			w.Changed, w.FromRevision, w.ToRevision = done.Changed, done.FromRevision, done.ToRevision
			w.FromReplicas, w.ToReplicas = done.FromReplicas, done.ToReplicas
			w.FromPackage, w.ToPackage = done.FromPackage, done.ToPackage
			w.Before, w.After = done.Before, done.After
		}
	} else {
		w.State, w.Message, w.Changed = plan.ItemSucceeded, result.Message, result.Changed
		w.FromRevision, w.ToRevision = result.FromRevision, result.ToRevision
		w.FromReplicas, w.ToReplicas = result.FromReplicas, result.ToReplicas
		w.FromPackage, w.ToPackage = result.FromPackage, result.ToPackage
		w.Before, w.After = result.Before, result.After
	}
	r.show()
}

// operate runs the operation until it ends: over claims of dead workflows, and over interruptions.
func (r *itemRun) operate(ctx workflow.Context, i int) (workloadops.Result, error) {
	if r.loaded.RollOut != nil {
		result, err := r.rollOut(ctx, i)
		if errors.Is(err, errAbandoned) { // it has borrowed nothing yet
			r.givenUp[i] = true
			err = temporal.NewNonRetryableApplicationError(r.orders[i].Request.Workload.String()+": given up while interrupted, before its rollout began",
				string(failure.WorkloadFailed), nil)
		}
		return result, err
	}
	order := r.orders[i]
	request := order.Request
	summary := fmt.Sprintf("%s %s", request.Operation, request.Workload)
	var result workloadops.Result
	err := r.persist(ctx, partyName(request), func(spent int64) error {
		request.SpentSeconds = max(request.SpentSeconds, spent)
		return r.attempt(ctx, order.Queue, &request, summary, &result)
	})
	switch {
	case errors.Is(err, errAbandoned):
		r.givenUp[i] = true
		return result, r.giveUp(ctx, order, request, summary)
	case detailsOf(err).Owed:
		if restored := r.giveBack(ctx, order, request, summary); restored != nil {
			return result, restored
		}
	}
	return result, err
}

// attempt runs the operation once more: over a queue that nobody polled while all of ours was down, and over a dead workflow's claim.
func (r *itemRun) attempt(
	ctx workflow.Context, queue string, request *workloadops.Request, summary string, result *workloadops.Result,
) error {
	askedAgain := false
	pickUp := r.budget
	for {
		err := perform(withActivity(ctx, partyRun(queue, pickUp), summary), workloadops.ActivityRun, *request, result)
		switch {
		case isScheduleToStart(err) && !askedAgain:
			// The clock of this timeout also runs while everything of ours is down: ask once more, now that we are not.
			askedAgain, pickUp = true, min(r.budget, secondPickUp)
		case kindOf(err) == failure.Claimed && request.TakeOver == "":
			answer, asked := r.holder(ctx, detailsOf(err).Holder)
			if asked != nil {
				return asked
			}
			if !answer.Dead {
				return temporal.NewNonRetryableApplicationError(message(err)+" ("+answer.Reason+")", string(failure.Claimed), nil)
			}
			request.TakeOver = detailsOf(err).Holder
		default:
			return err
		}
	}
}

// secondPickUp is how long a party's queue may be without a worker once it is known that this side of the engine runs.
const secondPickUp = 20 * time.Second

// holder asks the centre whether the workflow that holds a workload is dead.
func (r *itemRun) holder(ctx workflow.Context, claim string) (workloadops.ClaimHolderResult, error) {
	var answer workloadops.ClaimHolderResult
	err := perform(withActivity(ctx, centreWithin(r.budget), "ask whether the workload's holder is alive"),
		workloadops.ActivityClaimHolder, workloadops.ClaimHolderRequest{Claim: claim, Task: r.in.Task, Plan: r.in.Plan}, &answer)
	return answer, asSystem(err)
}

// giveUp ends an operation that was abandoned while interrupted.
func (r *itemRun) giveUp(ctx workflow.Context, order workloadops.WorkloadOrder, request workloadops.Request, summary string) error {
	what := request.Workload.String()
	if err := r.giveBack(ctx, order, request, summary); err != nil {
		return err
	}
	return temporal.NewNonRetryableApplicationError(what+": given up while interrupted; what was borrowed is given back",
		string(failure.WorkloadFailed), nil)
}

// giveBack restores what an operation borrowed. It is owed, however long the party is away or its cluster refuses: once it is known why it
// cannot be done, the server alone tries it again, which costs no history.
func (r *itemRun) giveBack(ctx workflow.Context, order workloadops.WorkloadOrder, request workloadops.Request, summary string) error {
	r.reason = "waits until " + partyName(request) + " answers, to give back what was borrowed"
	r.show()
	restore := workloadops.RestoreRequest{Request: request}
	for {
		err := perform(withActivity(ctx, partyRestore(order.Queue), "give back after "+summary), workloadops.ActivityRestore, restore, nil)
		if err == nil {
			return nil
		}
		if restore.Persist { // somebody has reset or failed the activity by hand: it stays owed
			pause := workflow.TimerOptions{Summary: "before the next try to give back"}
			if err := workflow.NewTimerWithOptions(ctx, workloadops.RestoreAgain, pause).Get(ctx, nil); err != nil {
				return err
			}
		}
		restore.Persist = true
		r.reason = fmt.Sprintf("cannot give back what was borrowed yet: %s; it is tried again every %s: Pending Activities shows the latest try",
			message(err), workloadops.RestoreAgain)
		r.show()
	}
}

var errAbandoned = errors.New("given up while interrupted")

// persist calls do until it succeeds or fails for good. On system trouble it tells the task and waits for resume, however long;
// do is told what the operation has used of its deadline so far, in seconds.
func (r *itemRun) persist(ctx workflow.Context, what string, do func(spentSeconds int64) error) error {
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
			r.report(false, "goes on after an interruption")
		}
		r.show()
	}
}

// report tells the task. A task that is gone (terminated) needs no report: the resume signal can come from a person.
func (r *itemRun) report(interrupted bool, reason string) {
	r.reason = reason
	parent := workflow.GetInfo(r.ctx).ParentWorkflowExecution
	if parent == nil {
		return
	}
	report := ItemSignal{Item: r.in.Item, Interrupted: interrupted, Reason: reason}
	workflow.SignalExternalWorkflow(r.ctx, parent.ID, parent.RunID, SignalItem, report)
}

func partyName(request workloadops.Request) string {
	return "party " + request.Workload.PartyOrDefault()
}
