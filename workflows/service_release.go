package workflows

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workloadops"
)

// ServiceRelease is one item of a task: one operation on the selected workloads of one service, side by side or one after another.
//
// System trouble does not end it: it tells its task, waits for resume, and goes on where it is; told to stop, it gives back what it
// borrowed and ends. It never closes while it owes a workload its settings (design §4).
func ServiceRelease(ctx workflow.Context, in ServiceReleaseInput) (ServiceReleaseResult, error) {
	detached, _ := workflow.NewDisconnectedContext(ctx)
	r := &itemRun{ctx: detached, in: in, box: inboxOf(ctx), state: plan.ItemRunning, budget: time.Duration(in.UnreachableBudgetSeconds) * time.Second}
	for _, v := range []struct{ name, description string }{
		{SignalItemResume, "Go on after an interruption. Its task sends this: resume the task instead."},
		{SignalItemAbandon, "Give up while interrupted, and give back what was borrowed. Its task sends this: stop the task instead."},
	} {
		workflow.GetSignalChannelWithOptions(r.ctx, v.name, workflow.SignalChannelOptions{Description: v.description})
	}
	if err := workflow.SetQueryHandlerWithOptions(r.ctx, QueryState, func() (plan.ServiceStatus, error) { return r.status(), nil },
		workflow.QueryHandlerOptions{Description: "The service: its state, why, and each workload."}); err != nil {
		return ServiceReleaseResult{}, err
	}
	workflow.Go(r.ctx, func(ctx workflow.Context) { r.listen(ctx) })
	workflow.Go(r.ctx, func(wctx workflow.Context) {
		ctx.Done().Receive(wctx, nil)
		r.abandoned = true // Temporal's Cancel means stop: what runs is left to finish
	})
	return r.run(), nil
}

// itemRun is a running item. Everything in it is touched by the workflow's coroutines only.
type itemRun struct {
	ctx    workflow.Context
	in     ServiceReleaseInput
	box    *inbox
	budget time.Duration
	state  plan.ItemState
	reason string
	works  []plan.WorkloadStatus
	orders []workloadops.WorkloadOrder
	// givenUp are the workloads whose operation was abandoned while interrupted.
	givenUp []bool
	// held counts the workloads that system trouble holds up; round counts the resumes that came.
	held, round int
	abandoned   bool
}

// listen takes what the task sends.
func (r *itemRun) listen(ctx workflow.Context) {
	for {
		if err := workflow.Await(ctx, func() bool { return len(r.box.pending) > 0 }); err != nil {
			return
		}
		for c := r.box.take(); c != nil; c = r.box.take() {
			switch string(c.verb) {
			case SignalItemResume:
				r.round++
			case SignalItemAbandon:
				r.abandoned = true
			}
		}
	}
}

func (r *itemRun) run() ServiceReleaseResult {
	r.show()
	if err := r.load(); err != nil {
		result := r.finish(plan.ItemFailed, message(err))
		result.Abandoned = errors.Is(err, errAbandoned)
		return result
	}
	if r.in.Outline.Method == plan.Sequential {
		r.oneByOne()
	} else {
		r.together()
	}
	return r.conclude()
}

// load reads the item from the task's record.
func (r *itemRun) load() error {
	var loaded workloadops.LoadItemResult
	err := r.persist(r.ctx, "the engine's home cluster", func(int64) error {
		return workflow.ExecuteActivity(withActivity(r.ctx, centreWithin(r.budget), "read the item from the record"),
			workloadops.ActivityLoadItem, workloadops.LoadItemRequest{Task: r.in.Task, Item: r.in.Item}).Get(r.ctx, &loaded)
	})
	if err != nil {
		return err
	}
	holder := workloadops.Holder{WorkflowID: workflow.GetInfo(r.ctx).WorkflowExecution.ID, RunID: workflow.GetInfo(r.ctx).WorkflowExecution.RunID}
	r.orders = loaded.Workloads
	r.works, r.givenUp = make([]plan.WorkloadStatus, len(r.orders)), make([]bool, len(r.orders))
	for i := range r.orders {
		q := &r.orders[i].Request
		q.Claim, q.Marker = holder.String(), holder.WorkflowID
		w := q.Workload
		r.works[i] = plan.WorkloadStatus{Party: w.PartyOrDefault(), Namespace: w.Namespace, Kind: w.WorkloadRef.Kind, Name: w.WorkloadRef.Name,
			State: plan.ItemPending, Message: "waits for its turn"}
	}
	return nil
}

func (r *itemRun) together() {
	wg := workflow.NewWaitGroup(r.ctx)
	for i := range r.orders {
		wg.Add(1)
		workflow.Go(r.ctx, func(ctx workflow.Context) {
			defer wg.Done()
			r.release(ctx, i)
		})
	}
	wg.Wait(r.ctx)
}

// oneByOne takes the workloads in the catalogue's order, but one with a pod out before all others: no second pod of the service may go
// out beside it. It stops at the first workload that fails: what comes after it is not touched.
func (r *itemRun) oneByOne() {
	left := make([]int, len(r.orders))
	for i := range left {
		left[i] = i
	}
	for len(left) > 0 {
		at, err := r.next(left)
		i := left[at]
		left = slices.Delete(left, at, at+1)
		if err != nil {
			r.givenUp[i] = true
			r.works[i].State, r.works[i].Message = plan.ItemFailed, r.orders[i].Request.Workload.String()+": "+err.Error()
		} else {
			r.release(r.ctx, i)
		}
		if r.works[i].State == plan.ItemFailed {
			r.skip(left, i)
			return
		}
	}
}

func (r *itemRun) skip(left []int, failed int) {
	for _, j := range left {
		r.works[j].State, r.works[j].Message = plan.ItemSkipped, "never begun: "+r.orders[failed].Request.Workload.String()+" failed before it"
	}
}

// next is the place in left of the workload that is taken next; errAbandoned when the item was told to give up meanwhile.
// What else keeps a party from answering is found out by the operation itself.
func (r *itemRun) next(left []int) (int, error) {
	if len(left) == 1 {
		return 0, nil
	}
	for at, i := range left {
		o := r.orders[i]
		var answer workloadops.OutResult
		err := r.persist(r.ctx, partyName(o.Request), func(int64) error {
			return workflow.ExecuteActivity(withActivity(r.ctx, partyLook(o.Queue, r.budget), fmt.Sprintf("is a pod of %s out?", o.Request.Workload)),
				workloadops.ActivityOut, workloadops.OutRequest{Workloads: []catalog.Workload{o.Request.Workload}}).Get(r.ctx, &answer)
		})
		switch {
		case errors.Is(err, errAbandoned):
			return 0, err
		case err == nil && len(answer.Out) == 1 && answer.Out[0] > 0:
			return at, nil
		}
	}
	return 0, nil
}

// release brings one workload to what was asked.
func (r *itemRun) release(ctx workflow.Context, i int) {
	w := &r.works[i]
	w.State, w.Message = plan.ItemRunning, "being released"
	r.show()
	result, err := r.operate(ctx, i)
	if err != nil {
		w.State, w.Message = plan.ItemFailed, message(err)
		if done := detailsOf(err).Effect; done != nil {
			w.Changed, w.FromRevision, w.ToRevision, w.FromReplicas, w.ToReplicas = done.Changed, done.FromRevision, done.ToRevision, done.FromReplicas, done.ToReplicas
		}
	} else {
		w.State, w.Message, w.Changed = plan.ItemSucceeded, result.Message, result.Changed
		w.FromRevision, w.ToRevision, w.FromReplicas, w.ToReplicas = result.FromRevision, result.ToRevision, result.FromReplicas, result.ToReplicas
	}
	r.show()
}

// operate runs the operation until it ends: over claims of dead workflows, and over interruptions.
func (r *itemRun) operate(ctx workflow.Context, i int) (workloadops.Result, error) {
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

// attempt runs the operation once more: over a queue that nobody polled while everything of ours was down, and over the claim of a dead workflow.
func (r *itemRun) attempt(ctx workflow.Context, queue string, request *workloadops.Request, summary string, result *workloadops.Result) error {
	askedAgain := false
	pickUp := r.budget
	for {
		err := workflow.ExecuteActivity(withActivity(ctx, partyRun(queue, pickUp), summary), workloadops.ActivityRun, *request).Get(ctx, result)
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
	err := workflow.ExecuteActivity(withActivity(ctx, centreWithin(r.budget), "ask whether the workload's holder is alive"), workloadops.ActivityClaimHolder,
		workloadops.ClaimHolderRequest{Claim: claim, Task: r.in.Task, Plan: r.in.Plan}).Get(ctx, &answer)
	return answer, asSystem(err)
}

// restorePause is the pause between two tries to give back where the party's cluster refuses.
const restorePause = time.Minute

// giveUp ends an operation that was abandoned while interrupted.
func (r *itemRun) giveUp(ctx workflow.Context, order workloadops.WorkloadOrder, request workloadops.Request, summary string) error {
	what := request.Workload.String()
	if err := r.giveBack(ctx, order, request, summary); err != nil {
		return err
	}
	return temporal.NewNonRetryableApplicationError(what+": given up while interrupted; what was borrowed is given back", string(failure.WorkloadFailed), nil)
}

// giveBack restores what an operation borrowed. It is owed: it is tried for as long as the party is away, or its cluster does not let us.
func (r *itemRun) giveBack(ctx workflow.Context, order workloadops.WorkloadOrder, request workloadops.Request, summary string) error {
	r.reason = "waits until " + partyName(request) + " answers, to give back what was borrowed"
	r.show()
	for {
		err := workflow.ExecuteActivity(withActivity(ctx, partyRestore(order.Queue), "give back after "+summary), workloadops.ActivityRestore, request).Get(ctx, nil)
		if err == nil {
			return nil
		}
		r.reason = "cannot give back what was borrowed yet: " + message(err)
		r.show()
		if err := workflow.NewTimerWithOptions(ctx, restorePause, workflow.TimerOptions{Summary: "before the next try to give back"}).Get(ctx, nil); err != nil {
			return err
		}
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
		r.interrupt(trouble)
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

func (r *itemRun) interrupt(trouble string) {
	r.held++
	r.report(true, trouble)
	r.show()
}

// report tells the task. A task that is gone (terminated) needs no report: the resume signal can come from a person.
func (r *itemRun) report(interrupted bool, reason string) {
	r.reason = reason
	parent := workflow.GetInfo(r.ctx).ParentWorkflowExecution
	if parent == nil {
		return
	}
	workflow.SignalExternalWorkflow(r.ctx, parent.ID, parent.RunID, SignalItem, ItemSignal{Item: r.in.Item, Interrupted: interrupted, Reason: reason})
}

func partyName(request workloadops.Request) string {
	return "party " + request.Workload.PartyOrDefault()
}

// conclude draws the item's end from its workloads' ends.
func (r *itemRun) conclude() ServiceReleaseResult {
	if i, failed := r.firstFailed(); failed {
		result := r.finish(plan.ItemFailed, r.works[i].Message)
		result.Abandoned = r.givenUp[i]
		return result
	}
	changed := 0
	for _, w := range r.works {
		if w.Changed {
			changed++
		}
	}
	switch {
	case changed == 0:
		return r.finish(plan.ItemSucceeded, "nothing to do")
	case len(r.works) == 1:
		return r.finish(plan.ItemSucceeded, r.works[0].Message)
	default:
		return r.finish(plan.ItemSucceeded, fmt.Sprintf("%d workloads are released, %d of them had to change", len(r.works), changed))
	}
}

// firstFailed is the workload that the item's end is told by: one that failed by itself before one that was given up.
func (r *itemRun) firstFailed() (int, bool) {
	for _, givenUp := range []bool{false, true} {
		for i, w := range r.works {
			if w.State == plan.ItemFailed && r.givenUp[i] == givenUp {
				return i, true
			}
		}
	}
	return 0, false
}

func (r *itemRun) finish(state plan.ItemState, reason string) ServiceReleaseResult {
	r.state, r.reason = state, reason
	r.show()
	if r.works == nil {
		r.works = []plan.WorkloadStatus{}
	}
	return ServiceReleaseResult{State: state, Reason: reason, Workloads: r.works}
}

func (r *itemRun) status() plan.ServiceStatus {
	started := workflow.GetInfo(r.ctx).WorkflowStartTime
	return plan.ServiceStatus{ServiceID: r.in.Outline.ServiceID, Priority: r.in.Outline.Priority, Deployment: r.in.Outline.Deployment,
		Method: r.in.Outline.Method, State: r.state, Reason: r.reason, StartedAt: &started, Workloads: r.works}
}

func (r *itemRun) show() {
	workflow.SetCurrentDetails(r.ctx, itemDetails(r.in, r.status(), r.held > 0))
}
