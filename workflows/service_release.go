package workflows

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/origin"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workload"
)

// ServiceRelease is one item of a task: one operation on the selected workloads of one service, concurrently or one
// after another.
//
// System trouble does not end it: it reports to its task, waits for resume and continues. When ordered to give up, it
// restores what it borrowed and ends. It never closes before the workloads' settings are restored. Its history is
// bounded, for any number of workloads.
func ServiceRelease(ctx workflow.Context, in ServiceReleaseInput) (ServiceReleaseResult, error) {
	detached, _ := workflow.NewDisconnectedContext(ctx)
	r := &itemRun{ctx: detached, in: in, box: inboxOf(ctx), state: plan.ItemRunning, statuses: []plan.WorkloadStatus{},
		budget: time.Duration(in.UnreachableBudgetSeconds) * time.Second}
	declareSignals(r.ctx,
		menuEntry{SignalItemResume, "Continue after an interruption. Its task sends this: resume the task instead."},
		menuEntry{SignalItemAbandon, "Give up while interrupted, and restore borrowed settings. Its task sends this: " +
			"stop the task instead."},
		menuEntry{SignalItemStopRollouts, "Stop the rollouts of the service. Its task sends this: stop the task with " +
			"to (stable, new, frozen) instead."})
	state := func() (plan.ServiceStatus, error) { return r.status(), nil }
	if err := setStateQuery(r.ctx, state, "The service: its state, why, and each workload."); err != nil {
		return ServiceReleaseResult{}, err
	}
	workflow.Go(r.ctx, func(ctx workflow.Context) { r.listen(ctx) })
	workflow.Go(r.ctx, func(wctx workflow.Context) {
		ctx.Done().Receive(wctx, nil)
		r.abandoned = true // Temporal's Cancel means stop: running operations finish
	})
	if refusal := checkOrigin(r.ctx, origin.Request{Task: in.Task, ParentType: TypeDeployPlan},
		in.State != nil); refusal != "" {
		return ServiceReleaseResult{}, errOrigin(refusal)
	}
	result, continues := r.run()
	if continues {
		return ServiceReleaseResult{}, workflow.NewContinueAsNewError(r.ctx, TypeServiceRelease, r.nextInput())
	}
	return result, nil
}

// itemRun is a running item. Only the workflow's coroutines access it.
type itemRun struct {
	ctx      workflow.Context
	in       ServiceReleaseInput
	box      *inbox
	budget   time.Duration
	state    plan.ItemState
	reason   string
	statuses []plan.WorkloadStatus
	orders   []operation.WorkloadOrder
	// givenUp marks the workloads whose operation was abandoned while interrupted.
	givenUp []bool
	// busy is the number of workloads in progress.
	busy int
	// held is the number of workloads held up by system trouble; round counts the resume signals received.
	held, round int
	abandoned   bool
	// fetched is the deployed package; nil for other operations, and until it is fetched.
	fetched *source.Fetched
	// loaded is the item as recorded; rollouts are the running ones, by index of their workloads.
	loaded   operation.LoadItemResult
	rollouts []workflow.ChildWorkflowFuture
	// reportedRollouts is true once the task was informed that rollouts release the item.
	reportedRollouts bool
	// stopTo is the task's request to end the rollouts; nil if there is none.
	stopTo *RolloutVerbRequest
	// building is the build of COMPILE_DEPLOY; nil for other operations, and until its commit is known. built is its
	// result.
	building *plan.BuildStatus
	built    *build.Built
}

// listen processes the task's signals.
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
				workflow.GetLogger(ctx).Warn("ignored a stop that cannot be decoded", "error", err)
				continue
			}
			r.stopRollouts(ask)
		}
	}
}

// run executes the item. continues means that the history is long and the workflow continues as new.
func (r *itemRun) run() (result ServiceReleaseResult, continues bool) {
	r.show()
	err := r.load()
	if err == nil {
		err = r.prepare()
	}
	if err != nil { // it has not begun with any workload
		r.skip(r.pending(), message(err))
		return r.finish(plan.ItemFailed, message(err), errors.Is(err, errAbandoned)), false
	}
	if r.releaseAll() {
		return ServiceReleaseResult{}, true
	}
	r.sweep()
	return r.conclude(), false
}

// nextInput is the input of the next run. No workload is in progress then.
func (r *itemRun) nextInput() ServiceReleaseInput {
	in := r.in
	in.State = &ServiceReleaseState{Workloads: r.statuses, GivenUp: r.givenUp, Abandoned: r.abandoned,
		StartedAt: r.startedAt(), Package: r.fetched, Build: r.buildState()}
	return in
}

// load reads the item from the task's record.
func (r *itemRun) load() error {
	err := r.retryUntilResumed(r.ctx, homeCluster, func(int64) error {
		return perform(withActivity(r.ctx, centreWithin(r.budget), "read the item from the record"),
			operation.ActivityLoadItem, operation.LoadItemRequest{Task: r.in.Task, Item: r.in.Item}, &r.loaded)
	})
	if err != nil {
		return err
	}
	self := workflow.GetInfo(r.ctx).WorkflowExecution
	holder := workload.Holder{WorkflowID: self.ID, RunID: self.RunID, Engine: r.in.Engine}
	r.orders = r.loaded.Workloads
	r.rollouts = make([]workflow.ChildWorkflowFuture, len(r.orders))
	r.statuses, r.givenUp = make([]plan.WorkloadStatus, len(r.orders)), make([]bool, len(r.orders))
	for i := range r.orders {
		q := &r.orders[i].Request
		q.Claim, q.Marker = holder.String(), holder.WorkflowID
		w := q.Workload
		r.statuses[i] = plan.WorkloadStatus{Party: w.PartyOrDefault(), Namespace: w.Namespace, Kind: w.WorkloadRef.Kind,
			Name: w.WorkloadRef.Name, State: plan.ItemPending, Message: "waits for its turn"}
	}
	if state := r.in.State; state != nil {
		copy(r.statuses, state.Workloads)
		copy(r.givenUp, state.GivenUp)
		r.abandoned = r.abandoned || state.Abandoned
	}
	return nil
}

// conclude derives the item's result from its workloads' results.
func (r *itemRun) conclude() ServiceReleaseResult {
	if i, failed := r.firstFailed(); failed {
		return r.finish(plan.ItemFailed, r.statuses[i].Message, r.givenUp[i])
	}
	changed, skipped := 0, 0
	for _, w := range r.statuses {
		if w.Changed {
			changed++
		}
		if w.State == plan.ItemSkipped {
			skipped++
		}
	}
	switch {
	case skipped > 0: // no workload has failed: the task was stopped
		return r.finish(plan.ItemFailed,
			fmt.Sprintf("stopped: %d of %d workloads were never begun", skipped, len(r.statuses)), true)
	case changed == 0:
		return r.finish(plan.ItemSucceeded, "nothing to do", false)
	case len(r.statuses) == 1:
		return r.finish(plan.ItemSucceeded, r.statuses[0].Message, false)
	default:
		return r.finish(plan.ItemSucceeded,
			fmt.Sprintf("%d workloads are released, %d of them had to change", len(r.statuses), changed), false)
	}
}

// firstFailed returns the workload that determines the item's reason: a failed operation before one that was given up.
func (r *itemRun) firstFailed() (int, bool) {
	for _, givenUp := range []bool{false, true} {
		for i, w := range r.statuses {
			if w.State == plan.ItemFailed && r.givenUp[i] == givenUp {
				return i, true
			}
		}
	}
	return 0, false
}

func (r *itemRun) finish(state plan.ItemState, reason string, abandoned bool) ServiceReleaseResult {
	r.state = state
	r.say(reason)
	return ServiceReleaseResult{State: state, Reason: reason, Workloads: r.statuses, Package: r.packageStatus(),
		Build: r.building, Abandoned: abandoned}
}

func (r *itemRun) status() plan.ServiceStatus {
	started := r.startedAt()
	return plan.ServiceStatus{ServiceID: r.in.Outline.ServiceID, Priority: r.in.Outline.Priority,
		Deployment: r.in.Outline.Deployment, Method: r.in.Outline.Method, State: r.state, Reason: r.reason,
		StartedAt: &started, Workloads: r.statuses, Package: r.packageStatus(), Build: r.building}
}

func (r *itemRun) show() {
	workflow.SetCurrentDetails(r.ctx, itemDetails(r.in, r.status(), r.held > 0))
}

// say shows a reason.
func (r *itemRun) say(reason string) {
	r.reason = reason
	r.show()
}

// startedAt is when the item's first run started.
func (r *itemRun) startedAt() time.Time {
	if r.in.State != nil {
		return r.in.State.StartedAt
	}
	return workflow.GetInfo(r.ctx).WorkflowStartTime
}

// DefaultConcurrentWorkloads is how many workloads of one service a PARALLEL release has in progress at once by
// default. The server fails the workflow task, permanently, if a workflow has more than 2,000 pending activities.
const DefaultConcurrentWorkloads = 100

// maxBusy is how many workloads may be in progress at once.
func (r *itemRun) maxBusy() int {
	if r.in.Outline.Method == plan.Sequential {
		return 1
	}
	return cmp.Or(r.in.MaxConcurrentWorkloads, DefaultConcurrentWorkloads)
}

// releaseAll releases the workloads, up to maxBusy at once. SEQUENTIAL takes them in the catalogue's order, but a
// workload with unavailable pods first, so that no second workload of the service loses a pod at the same time. A
// failed workload ends it: the remaining ones are not changed. PARALLEL continues with the others, but starts none
// after a workload was given up.
//
// When the history is long it starts no further workloads; once the running ones have ended, the item continues as new.
func (r *itemRun) releaseAll() (continues bool) {
	for {
		pending := r.pending()
		if len(pending) > 0 && r.busy == 0 && r.startsNoMore() {
			r.skip(pending, r.whySkipped())
			pending = nil
		}
		if len(pending) == 0 && r.busy == 0 {
			return false
		}
		long := historyIsLong(r.ctx)
		if long && r.busy == 0 {
			return true
		}
		if len(pending) > 0 && !long && r.busy < r.maxBusy() && !r.startsNoMore() {
			r.begin(pending)
			continue
		}
		busy := r.busy
		if err := workflow.Await(r.ctx, func() bool { return r.busy < busy }); err != nil {
			return false
		}
	}
}

// pending returns the workloads that have not begun, in the catalogue's order.
func (r *itemRun) pending() []int {
	var pending []int
	for i, w := range r.statuses {
		if w.State == plan.ItemPending {
			pending = append(pending, i)
		}
	}
	return pending
}

// startsNoMore reports whether no further workload begins.
func (r *itemRun) startsNoMore() bool { return r.stopTo != nil || r.blockingWorkload() >= 0 }

// blockingWorkload is the index of the workload whose failure keeps others from beginning; -1 if there is none.
func (r *itemRun) blockingWorkload() int {
	for i, w := range r.statuses {
		if w.State == plan.ItemFailed && (r.givenUp[i] || r.in.Outline.Method == plan.Sequential) {
			return i
		}
	}
	return -1
}

// whySkipped is why no further workload begins.
func (r *itemRun) whySkipped() string {
	if failed := r.blockingWorkload(); failed >= 0 {
		return r.orders[failed].Request.Workload.String() + " failed before it"
	}
	return "the task was stopped"
}

func (r *itemRun) skip(pending []int, why string) {
	for _, i := range pending {
		r.statuses[i].State, r.statuses[i].Message = plan.ItemSkipped, "never begun: "+why
	}
}

// begin starts the next workload.
func (r *itemRun) begin(pending []int) {
	i := pending[0]
	if r.in.Outline.Method == plan.Sequential {
		var err error
		if i, err = r.nextWorkload(pending); err != nil {
			i = pending[0]
			r.givenUp[i] = true
			r.statuses[i].State, r.statuses[i].Message = plan.ItemFailed,
				r.orders[i].Request.Workload.String()+": "+err.Error()
			return
		}
	}
	w := &r.statuses[i]
	w.State, w.Message = plan.ItemRunning, "being released"
	r.busy++
	workflow.Go(r.ctx, func(ctx workflow.Context) {
		r.releaseWorkload(ctx, i)
		r.busy--
	})
}

// maxQueryWorkloads is the maximum number of workloads per query, which bounds the activity's payload and duration.
const maxQueryWorkloads = 300

// nextWorkload returns the workload to release next; errAbandoned if the item was ordered to give up meanwhile. One
// query asks a party's worker about all of its workloads. Other errors are ignored here: the operation itself will
// report them.
func (r *itemRun) nextWorkload(pending []int) (int, error) {
	if len(pending) == 1 {
		return pending[0], nil
	}
	next := -1
	for _, q := range grouped(pending, maxQueryWorkloads, func(i int) string { return r.orders[i].Queue }) {
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

// unavailable returns how many pods of each workload are requested but not ready.
func (r *itemRun) unavailable(workloads []int) ([]int32, error) {
	request := operation.UnavailableRequest{Workloads: make([]catalog.Workload, len(workloads))}
	for at, i := range workloads {
		request.Workloads[at] = r.orders[i].Request.Workload
	}
	first := r.orders[workloads[0]]
	var answer operation.UnavailableResult
	err := r.retryUntilResumed(r.ctx, partyName(first.Request), func(int64) error {
		what := fmt.Sprintf("count unavailable pods of %d workloads", len(workloads))
		return perform(withActivity(r.ctx, partyQuery(first.Queue, r.budget), what),
			operation.ActivityCountUnavailable, request, &answer)
	})
	return answer.Unavailable, err
}
