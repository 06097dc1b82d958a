package workflows

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workloadops"
)

// ServiceRelease is one item of a task: one operation on the selected workloads of one service, side by side or one after another.
//
// System trouble does not end it: it tells its task, waits for resume, and goes on where it is; told to stop, it gives back what it
// borrowed and ends. It never closes while it owes a workload its settings. Its history is bounded, however many workloads there are.
func ServiceRelease(ctx workflow.Context, in ServiceReleaseInput) (ServiceReleaseResult, error) {
	detached, _ := workflow.NewDisconnectedContext(ctx)
	r := &itemRun{ctx: detached, in: in, box: inboxOf(ctx), state: plan.ItemRunning,
		budget: time.Duration(in.UnreachableBudgetSeconds) * time.Second}
	offerSignals(r.ctx,
		menuEntry{SignalItemResume, "Go on after an interruption. Its task sends this: resume the task instead."},
		menuEntry{SignalItemAbandon, "Give up while interrupted, and give back what was borrowed. Its task sends this: stop the task instead."},
		menuEntry{SignalItemStopRollouts, "Stop the rollouts of the service. Its task sends this: stop the task with to (stable, new, frozen) instead."})
	state := func() (plan.ServiceStatus, error) { return r.status(), nil }
	if err := answerState(r.ctx, state, "The service: its state, why, and each workload."); err != nil {
		return ServiceReleaseResult{}, err
	}
	workflow.Go(r.ctx, func(ctx workflow.Context) { r.listen(ctx) })
	workflow.Go(r.ctx, func(wctx workflow.Context) {
		ctx.Done().Receive(wctx, nil)
		r.abandoned = true // Temporal's Cancel means stop: what runs is left to finish
	})
	result, leaves := r.run()
	if leaves {
		return ServiceReleaseResult{}, workflow.NewContinueAsNewError(r.ctx, TypeServiceRelease, r.again())
	}
	return result, nil
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
	// busy is how many workloads are under way.
	busy int
	// held counts the workloads that system trouble holds up; round counts the resumes that came.
	held, round int
	abandoned   bool
	// fetched is the package that is deployed; nil for other operations, and before it was fetched.
	fetched *source.Fetched
	// loaded is the item as it was recorded, rollouts are those that run, by the place of their workloads.
	loaded   workloadops.LoadItemResult
	rollouts []workflow.ChildWorkflowFuture
	// told says that the task knows of the rollouts.
	told bool
	// stopTo is what the task has sent to end the rollouts; nil: nothing.
	stopTo *RolloutVerbRequest
	// building is the build of COMPILE_DEPLOY; nil for other operations, and before its commit is known. built is what it has yielded.
	building *plan.BuildStatus
	built    *build.Built
}

// listen takes what the task sends.
func (r *itemRun) listen(ctx workflow.Context) {
	for {
		if err := workflow.Await(ctx, func() bool { return len(r.box.items) > 0 }); err != nil {
			return
		}
		switch s := r.box.take().(*signal); s.SignalName {
		case SignalItemResume:
			r.round++
		case SignalItemAbandon:
			r.abandoned = true
		case SignalItemStopRollouts:
			var ask RolloutVerbRequest
			if err := decodePayload(s.Arg, &ask); err != nil {
				workflow.GetLogger(ctx).Warn("a stop that cannot be read is passed over", "error", err)
				continue
			}
			r.stopRollouts(ask)
		}
	}
}

// run brings the item to its end; leaves says that its history is long, and it is to be continued as new.
func (r *itemRun) run() (result ServiceReleaseResult, leaves bool) {
	r.show()
	if err := r.load(); err != nil {
		result := r.finish(plan.ItemFailed, message(err))
		result.Abandoned = errors.Is(err, errAbandoned)
		return result, false
	}
	if err := r.bring(); err != nil {
		r.skipAll(message(err))
		result := r.finish(plan.ItemFailed, message(err))
		result.Abandoned = errors.Is(err, errAbandoned)
		return result, false
	}
	if leaves := r.walk(); leaves {
		return ServiceReleaseResult{}, true
	}
	r.sweep()
	return r.conclude(), false
}

// again is the input of the run that goes on where this one is. Nothing is under way then.
func (r *itemRun) again() ServiceReleaseInput {
	in := r.in
	in.State = &ServiceReleaseState{Workloads: r.works, GivenUp: r.givenUp, Abandoned: r.abandoned, StartedAt: r.startedAt(),
		Package: r.fetched, Build: r.buildState()}
	return in
}

// load reads the item from the task's record.
func (r *itemRun) load() error {
	err := r.persist(r.ctx, "the engine's home cluster", func(int64) error {
		return perform(withActivity(r.ctx, centreWithin(r.budget), "read the item from the record"),
			workloadops.ActivityLoadItem, workloadops.LoadItemRequest{Task: r.in.Task, Item: r.in.Item}, &r.loaded)
	})
	if err != nil {
		return err
	}
	self := workflow.GetInfo(r.ctx).WorkflowExecution
	holder := workloadops.Holder{WorkflowID: self.ID, RunID: self.RunID, Engine: r.in.Engine}
	r.orders = r.loaded.Workloads
	r.rollouts = make([]workflow.ChildWorkflowFuture, len(r.orders))
	r.works, r.givenUp = make([]plan.WorkloadStatus, len(r.orders)), make([]bool, len(r.orders))
	for i := range r.orders {
		q := &r.orders[i].Request
		q.Claim, q.Marker = holder.String(), holder.WorkflowID
		w := q.Workload
		r.works[i] = plan.WorkloadStatus{Party: w.PartyOrDefault(), Namespace: w.Namespace, Kind: w.WorkloadRef.Kind, Name: w.WorkloadRef.Name,
			State: plan.ItemPending, Message: "waits for its turn"}
	}
	if state := r.in.State; state != nil {
		copy(r.works, state.Workloads)
		copy(r.givenUp, state.GivenUp)
		r.abandoned = r.abandoned || state.Abandoned
	}
	return nil
}

// conclude draws the item's end from its workloads' ends.
func (r *itemRun) conclude() ServiceReleaseResult {
	if i, failed := r.firstFailed(); failed {
		result := r.finish(plan.ItemFailed, r.works[i].Message)
		result.Abandoned = r.givenUp[i]
		return result
	}
	changed, skipped := 0, 0
	for _, w := range r.works {
		if w.Changed {
			changed++
		}
		if w.State == plan.ItemSkipped {
			skipped++
		}
	}
	switch {
	case skipped > 0: // none has failed: the task was stopped
		result := r.finish(plan.ItemFailed, fmt.Sprintf("stopped: %d of %d workloads were never begun", skipped, len(r.works)))
		result.Abandoned = true
		return result
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
	return ServiceReleaseResult{State: state, Reason: reason, Workloads: r.works, Package: r.packageStatus(), Build: r.building}
}

func (r *itemRun) status() plan.ServiceStatus {
	started := r.startedAt()
	return plan.ServiceStatus{ServiceID: r.in.Outline.ServiceID, Priority: r.in.Outline.Priority, Deployment: r.in.Outline.Deployment,
		Method: r.in.Outline.Method, State: r.state, Reason: r.reason, StartedAt: &started, Workloads: r.works, Package: r.packageStatus(),
		Build: r.building}
}

func (r *itemRun) show() {
	workflow.SetCurrentDetails(r.ctx, itemDetails(r.in, r.status(), r.held > 0))
}

// startedAt is when the item's first run began.
func (r *itemRun) startedAt() time.Time {
	if r.in.State != nil {
		return r.in.State.StartedAt
	}
	return workflow.GetInfo(r.ctx).WorkflowStartTime
}

// DefaultConcurrentWorkloads is how many workloads of one service a PARALLEL release has under way at once, unless it is told otherwise:
// the server fails the task of a workflow with more than 2,000 pending activities, for ever.
const DefaultConcurrentWorkloads = 100

// atOnce is how many workloads may be under way at once.
func (r *itemRun) atOnce() int {
	if r.in.Outline.Method == plan.Sequential {
		return 1
	}
	return cmp.Or(r.in.MaxConcurrentWorkloads, DefaultConcurrentWorkloads)
}

// walk releases the workloads, as many at once as may be. SEQUENTIAL takes them in the catalogue's order, but one that misses a pod before
// all others: no second pod of the service may be missing beside it. A workload that fails ends it there: what comes after is not touched.
// PARALLEL ends the others too, but begins none once a workload was given up.
//
// When the history is long it begins nothing more: once what is under way has ended, the item is continued as new.
func (r *itemRun) walk() (leaves bool) {
	for {
		pending := r.pending()
		if len(pending) > 0 && r.busy == 0 && r.ends() {
			r.skip(pending)
			pending = nil
		}
		if len(pending) == 0 && r.busy == 0 {
			return false
		}
		long := historyIsLong(r.ctx)
		if long && r.busy == 0 {
			return true
		}
		if len(pending) > 0 && !long && r.busy < r.atOnce() && !r.ends() {
			r.begin(pending)
			continue
		}
		busy := r.busy
		if err := workflow.Await(r.ctx, func() bool { return r.busy < busy }); err != nil {
			return false
		}
	}
}

// pending are the workloads that have not begun, in the catalogue's order.
func (r *itemRun) pending() []int {
	var pending []int
	for i, w := range r.works {
		if w.State == plan.ItemPending {
			pending = append(pending, i)
		}
	}
	return pending
}

// ends says that no further workload begins.
func (r *itemRun) ends() bool { return r.stopTo != nil || r.stops() >= 0 }

// stops is the workload whose end keeps others from beginning; -1 when none does.
func (r *itemRun) stops() int {
	for i, w := range r.works {
		if w.State == plan.ItemFailed && (r.givenUp[i] || r.in.Outline.Method == plan.Sequential) {
			return i
		}
	}
	return -1
}

// skipAll ends the workloads of an item that failed before it began with any of them.
func (r *itemRun) skipAll(why string) {
	for i := range r.works {
		r.works[i].State, r.works[i].Message = plan.ItemSkipped, "never begun: "+why
	}
}

func (r *itemRun) skip(pending []int) {
	why := "the task was stopped"
	if failed := r.stops(); failed >= 0 {
		why = r.orders[failed].Request.Workload.String() + " failed before it"
	}
	for _, i := range pending {
		r.works[i].State, r.works[i].Message = plan.ItemSkipped, "never begun: "+why
	}
}

// begin takes the next workload.
func (r *itemRun) begin(pending []int) {
	i := pending[0]
	if r.in.Outline.Method == plan.Sequential {
		var err error
		if i, err = r.next(pending); err != nil {
			i = pending[0]
			r.givenUp[i] = true
			r.works[i].State, r.works[i].Message = plan.ItemFailed, r.orders[i].Request.Workload.String()+": "+err.Error()
			return
		}
	}
	w := &r.works[i]
	w.State, w.Message = plan.ItemRunning, "being released"
	r.busy++
	workflow.Go(r.ctx, func(ctx workflow.Context) {
		r.release(ctx, i)
		r.busy--
	})
}

// askAtOnce bounds one activity's payload, and its time.
const askAtOnce = 300

// next is the workload that is taken next; errAbandoned when the item was told to give up meanwhile. One question asks a party's worker for
// all of its workloads. What else keeps a party from answering is found out by the operation itself.
func (r *itemRun) next(pending []int) (int, error) {
	if len(pending) == 1 {
		return pending[0], nil
	}
	next := -1
	for _, q := range r.questions(pending) {
		unavailable, err := r.unavailable(q)
		if errors.Is(err, errAbandoned) {
			return 0, err
		}
		if err != nil {
			continue
		}
		for at, i := range q {
			if at < len(unavailable) && unavailable[at] > 0 && (next < 0 || i < next) {
				next = i
			}
		}
	}
	if next < 0 {
		next = pending[0]
	}
	return next, nil
}

// questions are the workloads by the queue that answers for them, in the catalogue's order.
func (r *itemRun) questions(pending []int) [][]int {
	var questions [][]int
	for _, i := range pending {
		at := slices.IndexFunc(questions, func(q []int) bool { return r.orders[q[0]].Queue == r.orders[i].Queue && len(q) < askAtOnce })
		if at < 0 {
			at, questions = len(questions), append(questions, nil)
		}
		questions[at] = append(questions[at], i)
	}
	return questions
}

// unavailable is how many pods of each workload are asked for and not ready.
func (r *itemRun) unavailable(workloads []int) ([]int32, error) {
	request := workloadops.UnavailableRequest{Workloads: make([]catalog.Workload, len(workloads))}
	for at, i := range workloads {
		request.Workloads[at] = r.orders[i].Request.Workload
	}
	first := r.orders[workloads[0]]
	var answer workloadops.UnavailableResult
	err := r.persist(r.ctx, partyName(first.Request), func(int64) error {
		what := fmt.Sprintf("does one of %d workloads miss a pod?", len(workloads))
		return perform(withActivity(r.ctx, partyLook(first.Queue, r.budget), what), workloadops.ActivityCountUnavailable, request, &answer)
	})
	return answer.Unavailable, err
}
