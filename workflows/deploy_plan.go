package workflows

import (
	"encoding/json"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workloadops"
)

// TypeTaskFailed is the error type of a DeployPlan workflow whose task failed, so that Temporal shows it as failed.
const TypeTaskFailed = "TaskFailed"

// DeployPlanResult is how a task ended; the whole task is in its record.
type DeployPlanResult struct {
	State  plan.TaskState `json:"state"`
	Reason string         `json:"reason"`
}

// DeployPlan is one execution of a deployment plan: waves of ServiceRelease children, in order, held, resumed and stopped by verbs.
//
// One loop owns all state. It takes commands from the inbox, starts what the machine says may start, and shows what it does; between two
// rounds it waits without timer or poll. It runs on a disconnected context: Temporal's Cancel means stop, and what runs is left to finish.
func DeployPlan(ctx workflow.Context, in DeployPlanInput) (DeployPlanResult, error) {
	r := newTaskRun(ctx, in)
	if err := r.offerVerbs(); err != nil {
		return DeployPlanResult{}, err
	}
	if err := workflow.SetQueryHandlerWithOptions(r.ctx, QueryState, func() (plan.Task, error) { return r.task, nil },
		workflow.QueryHandlerOptions{Description: "The whole task: its state, why, and each service."}); err != nil {
		return DeployPlanResult{}, err
	}
	workflow.Go(r.ctx, func(wctx workflow.Context) {
		ctx.Done().Receive(wctx, nil)
		r.box.push(&command{verb: plan.VerbStop, request: VerbRequest{Reason: "the workflow was cancelled"}})
	})
	if in.State == nil {
		r.begin()
	}
	for !r.closed() {
		r.serve()
		r.launch()
		r.conclude()
		r.publish()
		if again := r.again(); again != nil {
			return DeployPlanResult{}, workflow.NewContinueAsNewError(r.ctx, TypeDeployPlan, *again)
		}
		if err := workflow.Await(r.ctx, r.hasNews); err != nil {
			return DeployPlanResult{}, err
		}
	}
	return r.leave()
}

// taskRun is a running task. Everything in it is touched by the workflow's coroutines only.
type taskRun struct {
	ctx      workflow.Context
	in       DeployPlanInput
	machine  *plan.Machine
	task     plan.Task
	box      *inbox
	children []workflow.ChildWorkflowFuture
	// abandoned are the items that were told to give up.
	abandoned           []bool
	finished            []finishedItem
	recording, recorded bool
	beginAnswer         *beginAnswer
	// begun says that it is known whether the task may run.
	begun bool
	// shown are the state that was last published, and waiting whether it waits for a person.
	shown   plan.TaskState
	waiting bool
	// tooLarge says that what the task has to remember does not fit into the input of a next run: it ends in this one.
	tooLarge bool
}

type finishedItem struct {
	n      int
	result ServiceReleaseResult
	err    error
}

type beginAnswer struct {
	result workloadops.BeginTaskResult
	err    error
}

func newTaskRun(ctx workflow.Context, in DeployPlanInput) *taskRun {
	box := inboxOf(ctx)
	detached, _ := workflow.NewDisconnectedContext(ctx)
	info := workflow.GetInfo(ctx)
	r := &taskRun{
		ctx: detached, in: in, box: box,
		children:  make([]workflow.ChildWorkflowFuture, len(in.Items)),
		abandoned: make([]bool, len(in.Items)),
	}
	doc := plan.Document{Items: make([]plan.Item, len(in.Items))}
	names := make([]string, len(in.Items))
	services := make([]plan.ServiceStatus, len(in.Items))
	for n, it := range in.Items {
		doc.Items[n] = plan.Item{ServiceID: it.ServiceID, Priority: it.Priority}
		names[n] = string(it.ServiceID)
		services[n] = plan.ServiceStatus{ServiceID: it.ServiceID, Priority: it.Priority, Deployment: it.Deployment, Method: it.Method,
			State: plan.ItemPending, Reason: "waits for its turn", Workloads: []plan.WorkloadStatus{}}
	}
	r.machine = plan.NewMachine(names, doc.Waves(), in.MaxConcurrent)
	r.begun = in.State != nil
	r.task = plan.Task{ID: in.Task, Plan: in.Plan, Comment: in.Comment, CreatedAt: in.CreatedAt, Services: services,
		State: r.machine.State, Reason: r.machine.Reason,
		Workflow: &plan.WorkflowRef{ID: info.WorkflowExecution.ID, RunID: info.WorkflowExecution.RunID}}
	if in.State != nil {
		r.machine.Recall(in.State.Machine)
		r.task.StartedAt, r.task.Services, r.task.Interruptions = in.State.StartedAt, in.State.Services, in.State.Interruptions
		r.shown, r.waiting = r.machine.State, waitsForResume(r.machine.State) // search attributes go with the workflow into its next run
	}
	return r
}

// drainAt is at how many events a task begins nothing more until nothing of it runs: only then can it be continued as new, since its items report to this run
// alone. The server ends a workflow at 51,200 events.
const drainAt = 20_000

// maxCarried is how large the input of a next run may be, in bytes: the server fails a workflow that sends more than 2 MiB at once.
const maxCarried = 1_900_000

// again is the input of the run that goes on where this one is: nil unless the history is long and nothing is under way.
func (r *taskRun) again() *DeployPlanInput {
	if !historyIsLong(r.ctx) || !r.begun || r.recording || r.machine.Over() || r.machine.Running() > 0 || !r.fits() {
		return nil
	}
	if err := workflow.Await(r.ctx, func() bool { return workflow.AllHandlersFinished(r.ctx) }); err != nil || r.hasNews() {
		return nil
	}
	in := r.carried()
	return &in
}

func (r *taskRun) carried() DeployPlanInput {
	in := r.in
	in.State = &DeployPlanState{Machine: r.machine.Memory(), StartedAt: r.task.StartedAt, Services: r.task.Services, Interruptions: r.task.Interruptions}
	return in
}

// fits says whether the task can be continued as new. What it remembers only grows.
func (r *taskRun) fits() bool {
	if !r.tooLarge {
		input, err := json.Marshal(r.carried())
		r.tooLarge = err != nil || len(input) > maxCarried
	}
	return !r.tooLarge
}

// drains says that nothing more begins, so that the task can be continued as new soon.
func (r *taskRun) drains() bool {
	long := workflow.GetInfo(r.ctx).GetCurrentHistoryLength() >= drainAt || r.machine.Running() == 0 && historyIsLong(r.ctx)
	return long && r.fits()
}

// begin asks whether the task is the live one of its plan; the loop goes on serving meanwhile.
func (r *taskRun) begin() {
	workflow.Go(r.ctx, func(ctx workflow.Context) {
		var a beginAnswer
		a.err = workflow.ExecuteActivity(withActivity(ctx, centreForever, "check that this is the plan's live task"),
			workloadops.ActivityBeginTask, r.request()).Get(ctx, &a.result)
		r.beginAnswer = &a
	})
}

func (r *taskRun) request() workloadops.TaskRequest {
	return workloadops.TaskRequest{Task: r.in.Task, Plan: r.in.Plan, RunID: r.task.Workflow.RunID}
}

// hasNews lists what wakes the loop: a command, an item that ended, the answer of begin, the record that was written.
func (r *taskRun) hasNews() bool {
	return len(r.box.pending) > 0 || len(r.finished) > 0 || r.beginAnswer != nil || r.recorded
}

// serve carries out everything that has come in, oldest first.
func (r *taskRun) serve() {
	if a := r.beginAnswer; a != nil {
		r.beginAnswer = nil
		r.settleBegin(*a)
	}
	for _, f := range r.finished {
		r.end(f)
	}
	r.finished = nil
	for c := r.box.take(); c != nil; c = r.box.take() {
		if c.item != nil {
			r.hear(*c.item)
			continue
		}
		response := r.answer(c)
		c.response = &response
	}
}

// hear takes what an item reports. What names no running item came too late, or from somebody else.
func (r *taskRun) hear(s ItemSignal) {
	n := s.Item - 1
	if n < 0 || n >= len(r.task.Services) || r.machine.Item(n) != plan.ItemRunning {
		workflow.GetLogger(r.ctx).Warn("a report of no running item is passed over", "item", s.Item)
		return
	}
	trouble := ""
	if s.Interrupted {
		trouble = s.Reason
	}
	r.machine.Interrupted(n, trouble)
	r.task.Services[n].Reason = s.Reason
}

func (r *taskRun) settleBegin(a beginAnswer) {
	r.begun = true
	switch {
	case a.err != nil: // begin is retried for as long as the home cluster is away: only a final refusal comes here
		r.machine.GiveUp(message(a.err))
	case a.result.Superseded != "":
		r.machine.GiveUp(fmt.Sprintf("task %s has taken this task's place before it began", a.result.Superseded))
	default:
		now := workflow.Now(r.ctx)
		r.task.StartedAt = &now
		r.machine.Start()
	}
}

// launch starts what may start, and has interrupted items give up where no verb could help them any more.
func (r *taskRun) launch() {
	if next := r.machine.Next(); len(next) > 0 && !r.drains() {
		for _, n := range next {
			r.startItem(n)
		}
	}
	if r.machine.State == plan.TaskStopping || r.machine.State == plan.TaskFailed {
		for _, n := range r.machine.InterruptedItems() {
			if !r.abandoned[n] {
				r.abandoned[n] = true
				r.tell(n, SignalItemAbandon)
			}
		}
	}
}

func (r *taskRun) startItem(n int) {
	it := r.in.Items[n]
	now := workflow.Now(r.ctx)
	s := &r.task.Services[n]
	s.State, s.Reason, s.StartedAt = plan.ItemRunning, "being released", &now
	r.machine.Began(n)
	ctx := workflow.WithChildOptions(r.ctx, workflow.ChildWorkflowOptions{
		WorkflowID: plan.ItemWorkflowID(r.in.Task, n+1, it.ServiceID),
		TaskQueue:  QueueEngine,
		// A task that is terminated leaves its items to end on their own: they give back what they borrowed.
		ParentClosePolicy: parentClosePolicy,
		StaticSummary:     fmt.Sprintf("%s service %s, %s", it.Deployment, it.ServiceID, it.Method),
	})
	child := workflow.ExecuteChildWorkflow(ctx, TypeServiceRelease, ServiceReleaseInput{
		Task: r.in.Task, Plan: r.in.Plan, Item: n + 1, Outline: it, UnreachableBudgetSeconds: r.in.UnreachableBudgetSeconds,
		MaxConcurrentWorkloads: r.in.MaxConcurrentWorkloads,
	})
	r.children[n] = child
	workflow.Go(r.ctx, func(ctx workflow.Context) {
		f := finishedItem{n: n}
		f.err = child.Get(ctx, &f.result)
		r.finished = append(r.finished, f)
	})
}

func (r *taskRun) end(f finishedItem) {
	if f.err != nil {
		f.result = ServiceReleaseResult{State: plan.ItemFailed, Workloads: []plan.WorkloadStatus{},
			Reason: "its workflow ended without a result (" + message(f.err) + "): look at " + plan.ItemWorkflowID(r.in.Task, f.n+1, r.in.Items[f.n].ServiceID)}
	}
	now := workflow.Now(r.ctx)
	s := &r.task.Services[f.n]
	s.State, s.Reason, s.FinishedAt, s.Workloads = f.result.State, f.result.Reason, &now, f.result.Workloads
	if f.result.Abandoned {
		r.machine.Abandoned(f.n, f.result.Reason)
		return
	}
	r.machine.Ended(f.n, f.result.State, f.result.Reason)
}

// conclude writes the record once nothing runs any more. Verbs that come meanwhile are still answered.
func (r *taskRun) conclude() {
	if !r.machine.Over() || r.recording {
		return
	}
	r.recording = true
	r.machine.Skip()
	for n := range r.task.Services {
		if s := &r.task.Services[n]; s.State == plan.ItemPending {
			s.State, s.Reason = r.machine.Item(n), "never begun: the task is "+string(r.machine.State)
		}
	}
	now := workflow.Now(r.ctx)
	r.task.FinishedAt = &now
	r.show()
	workflow.Go(r.ctx, func(ctx workflow.Context) {
		err := workflow.ExecuteActivity(withActivity(ctx, centreForever, "write the record"), workloadops.ActivityCompleteRecord, r.request()).Get(ctx, nil)
		if err != nil {
			workflow.GetLogger(ctx).Error("the record could not be written", "task", r.in.Task, "error", err)
		}
		r.recorded = true
	})
}

func (r *taskRun) closed() bool { return r.recorded && len(r.box.pending) == 0 }

// leave ends the workflow without yielding after the last look into the inbox, so that no command is lost.
func (r *taskRun) leave() (DeployPlanResult, error) {
	if err := workflow.Await(r.ctx, func() bool { return workflow.AllHandlersFinished(r.ctx) }); err != nil {
		return DeployPlanResult{}, err
	}
	r.serve()
	result := DeployPlanResult{State: r.task.State, Reason: r.task.Reason}
	if result.State == plan.TaskFailed {
		return result, temporal.NewNonRetryableApplicationError(result.Reason, TypeTaskFailed, nil)
	}
	return result, nil
}

// show copies the machine's state into what queries answer.
func (r *taskRun) show() {
	r.noteInterruption()
	r.task.State, r.task.Reason, r.task.History = r.machine.State, r.machine.Reason, r.machine.Audit().Entries
}

// noteInterruption keeps when the task became and ceased to be Interrupted: the report tells.
func (r *taskRun) noteInterruption() {
	was, is := r.task.State == plan.TaskInterrupted, r.machine.State == plan.TaskInterrupted
	now := workflow.Now(r.ctx)
	switch last := len(r.task.Interruptions) - 1; {
	case is && !was && last < audit.MaxEntries:
		r.task.Interruptions = append(r.task.Interruptions, plan.Interruption{At: now, Reason: r.machine.Reason})
	case is && was && last >= 0:
		r.task.Interruptions[last].Reason = r.machine.Reason
	case was && !is && last >= 0:
		r.task.Interruptions[last].Until = &now
	}
}

// publish tells Temporal's lists and its UI what the task does; it writes only what changed.
func (r *taskRun) publish() {
	r.show()
	if r.task.State != r.shown {
		r.shown = r.task.State
		if err := workflow.UpsertTypedSearchAttributes(r.ctx, r.attributes()...); err != nil {
			workflow.GetLogger(r.ctx).Error("search attributes", "error", err)
		}
		switch r.task.State {
		case plan.TaskPausing, plan.TaskPaused, plan.TaskInterrupted, plan.TaskStopping:
			Shown{State: string(r.task.State), Reason: r.task.Reason}.remember(r.ctx)
		}
	}
	workflow.SetCurrentDetails(r.ctx, taskDetails(r.task, workflow.Now(r.ctx).UTC().Truncate(time.Second)))
}

// WaitingForResume is the SlipwayWaitingFor of a task that goes on when a person resumes it.
const WaitingForResume = "resume"

func waitsForResume(state plan.TaskState) bool {
	return state == plan.TaskPaused || state == plan.TaskInterrupted
}

// attributes are what lists find the task by: its state, and what it waits for since when, if for a person.
func (r *taskRun) attributes() []temporal.SearchAttributeUpdate {
	updates := []temporal.SearchAttributeUpdate{AttributeState.ValueSet(string(r.task.State))}
	waits := waitsForResume(r.task.State)
	switch {
	case waits && !r.waiting:
		updates = append(updates, AttributeWaitingFor.ValueSet(WaitingForResume), AttributeWaitingSince.ValueSet(workflow.Now(r.ctx)))
	case !waits && r.waiting:
		updates = append(updates, AttributeWaitingFor.ValueUnset(), AttributeWaitingSince.ValueUnset())
	}
	r.waiting = waits
	return updates
}
