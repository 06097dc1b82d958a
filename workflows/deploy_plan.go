package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

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
	state := func() (plan.Task, error) { return r.task, nil }
	if err := r.offer(state, "The whole task: its state, why, and each service."); err != nil {
		return DeployPlanResult{}, err
	}
	if in.State == nil {
		r.begin()
	}
	switch again, err := r.run(); {
	case err != nil:
		return DeployPlanResult{}, err
	case again:
		rememberStart(r.ctx, r.task.StartedAt)
		return DeployPlanResult{}, workflow.NewContinueAsNewError(r.ctx, TypeDeployPlan, r.next())
	}
	result := DeployPlanResult{State: r.task.State, Reason: r.task.Reason}
	if result.State == plan.TaskFailed {
		return result, temporal.NewNonRetryableApplicationError(result.Reason, TypeTaskFailed, nil)
	}
	return result, nil
}

// planMenu is what a DeployPlan takes.
var planMenu = menuOf(func(verb plan.Verb, q TaskVerbRequest) plan.Command {
	return plan.Command{Verb: verb, Actor: q.Actor, Via: q.Via, Reason: q.Reason, Key: q.Key, To: string(q.To)}
}, validateTaskVerb,
	menuEntry{plan.VerbPause, `Let the services that are being released finish, then hold back the rest. ` + planPayload},
	menuEntry{plan.VerbResume, `Go on after a pause or an interruption. ` + planPayload},
	menuEntry{plan.VerbStop, `Let the services that are being released finish, then end the task for good. ` + planPayload +
		` {"to":"stable"} also ends the rollouts that run: at stable, new or frozen.`},
	menuEntry{plan.VerbApprove, `Let what waits for a release window begin now. Payload: {"actor":"…","reason":"…"}; it needs a reason.`},
)

func validateTaskVerb(verb plan.Verb, q TaskVerbRequest) error {
	switch {
	case q.To == "":
	case verb != plan.VerbStop:
		return fmt.Errorf("to belongs to stop, not to %s: leave it out", verb)
	default:
		if err := validateStopTo(q.To); err != nil {
			return err
		}
	}
	return validateVerb(q.VerbRequest)
}

const planPayload = `Payload: empty, or {"actor":"…","reason":"…","key":"…"}.`

// taskRun is a running task. Everything in it is touched by the workflow's coroutines only.
type taskRun struct {
	*loop[plan.Command]
	in       DeployPlanInput
	machine  *plan.Machine
	task     plan.Task
	children []workflow.ChildWorkflowFuture
	// abandoned are the items that were told to give up.
	abandoned           []bool
	finished            []finishedItem
	recording, recorded bool
	beginAnswer         *beginAnswer
	// asking says that the task's times are being asked; openingAnswer is what they said.
	asking        bool
	openingAnswer *openingAnswer
	// begun says that it is known whether the task may run.
	begun bool
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
	r := &taskRun{
		loop: newLoop(ctx, planMenu, plan.Command{Verb: plan.VerbStop, Reason: reasonCancelled}, TypeDeployPlan), in: in,
		children: make([]workflow.ChildWorkflowFuture, len(in.Items)), abandoned: make([]bool, len(in.Items)), begun: in.State != nil,
	}
	doc := plan.Document{Items: make([]plan.Item, len(in.Items))}
	names := make([]string, len(in.Items))
	services := make([]plan.ServiceStatus, len(in.Items))
	for n, it := range in.Items {
		doc.Items[n] = plan.Item{ServiceID: it.ServiceID, Priority: it.Priority}
		names[n] = string(it.ServiceID)
		services[n] = plan.ServiceStatus{ServiceID: it.ServiceID, Priority: it.Priority, Deployment: it.Deployment, Method: it.Method,
			State: plan.ItemPending, Reason: "waits for its turn", Workloads: []plan.WorkloadStatus{}, RollOut: it.RollOut}
	}
	r.machine = plan.NewMachine(names, doc.Waves(), in.MaxConcurrent)
	for n, it := range in.Items {
		if it.RollOut {
			r.machine.RollsOut(n)
		}
	}
	if len(in.Times) > 0 {
		r.machine.KeepsTimes()
	}
	r.driver, r.loop.machine = r, r.machine
	r.task = plan.Task{ID: in.Task, Plan: in.Plan, Comment: in.Comment, CreatedAt: in.CreatedAt, Services: services,
		RerunOf: in.RerunOf, ReverseOf: in.ReverseOf, Actor: in.Actor, ExecuteReason: in.Reason,
		State: r.machine.State, Reason: r.machine.Reason,
		Workflow: &plan.WorkflowRef{ID: r.info.WorkflowExecution.ID, RunID: r.info.WorkflowExecution.RunID}}
	if in.State != nil {
		r.machine.Recall(in.State.Machine)
		r.task.StartedAt, r.task.Services, r.task.Interruptions = in.State.StartedAt, in.State.Services, in.State.Interruptions
		r.resumes()
	}
	return r
}

// idle says that the task can go on in another run: its items report to this run alone.
func (r *taskRun) idle() bool {
	return r.begun && !r.machine.Over() && r.machine.Running() == 0 && !r.asking
}

func (r *taskRun) over() bool { return r.recorded }

// rest: a task waits for messages, and for its release windows.
func (r *taskRun) rest() (until time.Time, summary string) {
	if wait := r.machine.Waiting(); wait != nil && wait.Until != nil && !r.asking {
		return *wait.Until, "until a release window opens"
	}
	return time.Time{}, ""
}

func (r *taskRun) next() any {
	in := r.in
	t := r.task
	in.State = &DeployPlanState{Machine: r.machine.Memory(), StartedAt: t.StartedAt, Services: t.Services, Interruptions: t.Interruptions}
	return in
}

// begin asks whether the task is the live one of its plan; the loop goes on serving meanwhile.
func (r *taskRun) begin() {
	workflow.Go(r.ctx, func(ctx workflow.Context) {
		var a beginAnswer
		a.err = perform(withActivity(ctx, centreForever, "check that this is the plan's live task"),
			workloadops.ActivityBeginTask, r.request(), &a.result)
		r.beginAnswer = &a
	})
}

func (r *taskRun) request() workloadops.TaskRequest {
	return workloadops.TaskRequest{Task: r.in.Task, Plan: r.in.Plan, RunID: r.task.Workflow.RunID}
}

func (r *taskRun) hasNews() bool {
	return len(r.finished) > 0 || r.beginAnswer != nil || r.openingAnswer != nil
}

// settle takes the answer of begin, and what has ended.
func (r *taskRun) settle(time.Time, bool) {
	if a := r.beginAnswer; a != nil {
		r.beginAnswer = nil
		r.settleBegin(*a)
	}
	for _, f := range r.finished {
		r.end(f)
	}
	r.finished = nil
	if a := r.openingAnswer; a != nil {
		r.openingAnswer = nil
		r.machine.TakeOpening(a.answer, a.at)
	}
}

// hear takes what an item reports. What names no running item came too late, or from somebody else.
func (r *taskRun) hear(signal *signal, _ time.Time) bool {
	if signal.SignalName != SignalItem {
		return false
	}
	var s ItemSignal
	if err := decodePayload(signal.Arg, &s); err != nil {
		workflow.GetLogger(r.ctx).Warn("a report that cannot be read is passed over", "error", err)
		return true
	}
	n := s.Item - 1
	if n < 0 || n >= len(r.task.Services) || r.machine.Item(n) != plan.ItemRunning {
		workflow.GetLogger(r.ctx).Warn("a report of no running item is passed over", "item", s.Item)
		return true
	}
	trouble := ""
	if s.Interrupted {
		trouble = s.Reason
	}
	r.machine.Interrupted(n, trouble)
	r.task.Services[n].Reason = s.Reason
	return true
}

func (r *taskRun) settleBegin(a beginAnswer) {
	r.begun = true
	switch {
	case a.err != nil: // begin is retried for as long as the home cluster is away: only a final refusal comes here
		r.machine.GiveUp(message(a.err))
	case a.result.Superseded != "":
		r.machine.GiveUp(fmt.Sprintf("task %s has taken this task's place before it began", a.result.Superseded))
	default:
		if len(r.in.Times) == 0 { // else it starts with its first service, which may be days later
			now := workflow.Now(r.ctx)
			r.task.StartedAt = &now
		}
		r.machine.Start()
	}
}

// act starts what may start, has interrupted items give up where no verb could help them any more, and ends what is over.
func (r *taskRun) act() {
	now := workflow.Now(r.ctx)
	if !r.asking && r.machine.AsksOpening(now) && !r.drains() {
		r.askOpening(now)
	}
	if next := r.machine.NextAt(now); len(next) > 0 && !r.drains() {
		for _, n := range next {
			r.startItem(n)
		}
	}
	if r.machine.State == plan.TaskStopping || r.machine.State == plan.TaskFailed {
		for _, n := range r.machine.InterruptedItems() {
			if !r.abandoned[n] {
				r.abandoned[n] = true
				r.tell(n, SignalItemAbandon, byTask)
			}
		}
	}
	r.conclude()
}

func (r *taskRun) itemWorkflowID(n int) string {
	return plan.ItemWorkflowID(r.in.Task, n+1, r.in.Items[n].ServiceID)
}

func (r *taskRun) startItem(n int) {
	it := r.in.Items[n]
	now := workflow.Now(r.ctx)
	s := &r.task.Services[n]
	s.State, s.Reason, s.StartedAt = plan.ItemRunning, "being released", &now
	if r.machine.Began(n); r.task.StartedAt == nil {
		r.task.StartedAt = &now
	}
	ctx := workflow.WithChildOptions(r.ctx, workflow.ChildWorkflowOptions{
		WorkflowID: r.itemWorkflowID(n),
		TaskQueue:  QueueEngine,
		// A task that is terminated leaves its items to end on their own: they give back what they borrowed.
		ParentClosePolicy: parentClosePolicy,
		StaticSummary:     fmt.Sprintf("%s service %s, %s", it.Deployment, it.ServiceID, it.Method),
	})
	child := workflow.ExecuteChildWorkflow(ctx, TypeServiceRelease, ServiceReleaseInput{
		Task: r.in.Task, Plan: r.in.Plan, Item: n + 1, Outline: it, UnreachableBudgetSeconds: r.in.UnreachableBudgetSeconds,
		MaxConcurrentWorkloads: r.in.MaxConcurrentWorkloads, Engine: r.in.Engine,
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
			Reason: fmt.Sprintf("its workflow ended without a result (%s): look at %s", message(f.err), r.itemWorkflowID(f.n))}
	}
	now := workflow.Now(r.ctx)
	s := &r.task.Services[f.n]
	s.State, s.Reason, s.FinishedAt, s.Workloads = f.result.State, f.result.Reason, &now, f.result.Workloads
	s.Package, s.Build = f.result.Package, f.result.Build
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
		err := perform(withActivity(ctx, centreForever, "write the record"), workloadops.ActivityCompleteRecord, r.request(), nil)
		if err != nil {
			workflow.GetLogger(ctx).Error("the record could not be written", "task", r.in.Task, "error", err)
		}
		r.recorded = true
	})
}

// show copies the machine's state into what queries answer.
func (r *taskRun) show() {
	r.noteInterruption()
	r.task.State, r.task.Reason, r.task.History = r.machine.State, r.machine.Reason, r.machine.Audit().Entries
	r.task.WaitingFor = r.machine.Waiting()
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

// WaitingForResume is the SlipwayWaitingFor of a task that goes on when a person resumes it.
const WaitingForResume = "resume"

func (r *taskRun) listed() listing {
	r.show()
	l := listing{state: string(r.task.State)}
	switch r.task.State {
	case plan.TaskPaused, plan.TaskInterrupted:
		l.waits = WaitingForResume
		fallthrough
	case plan.TaskPausing, plan.TaskStopping:
		l.memo = &Shown{State: l.state, Reason: r.task.Reason}
	case plan.TaskRunning:
		if wait := r.task.WaitingFor; wait != nil {
			l.waits, l.since, l.memo = wait.Kind, wait.Since, &Shown{State: l.state, Reason: r.task.Reason}
		}
	}
	return l
}

func (r *taskRun) details() string {
	return taskDetails(r.task, workflow.Now(r.ctx).UTC().Truncate(time.Second))
}

// carryOut hands a verb to the machine. A task that is interrupted goes on only if no newer one has taken its place.
func (r *taskRun) carryOut(e *envelope[plan.Command], _ time.Time) (audit.Outcome, string) {
	ask := e.command
	repeated := r.machine.Audit().Knows(ask.Key)
	if ask.Verb == plan.VerbResume && r.machine.State == plan.TaskInterrupted && !repeated {
		ask.Prevented = r.prevented()
	}
	held := r.machine.InterruptedItems()
	outcome, text := r.machine.Command(ask, workflow.Now(r.ctx))
	if outcome == audit.Accepted && ask.Verb == plan.VerbResume && !repeated {
		for _, n := range held {
			r.tell(n, SignalItemResume, byTask)
		}
	}
	if outcome == audit.Accepted && ask.To != "" && !repeated {
		r.stopRollouts(ask)
	}
	r.show()
	return outcome, text
}

// prevented is why an interrupted task cannot go on now; "" when it can.
func (r *taskRun) prevented() string {
	var result workloadops.BeginTaskResult
	again := r.request()
	again.Reclaim = true
	err := perform(withActivity(r.ctx, centreBriefly, "check that no newer task runs"), workloadops.ActivityBeginTask, again, &result)
	switch {
	case err != nil:
		return "the engine's home cluster cannot be asked whether a newer task runs (" + message(err) + "): send resume again when it answers"
	case result.Superseded != "":
		return fmt.Sprintf("task %s has taken this task's place: stop this one", result.Superseded)
	}
	return ""
}

// tell signals a running item. A child that has closed meanwhile needs no signal: its end is on the way.
func (r *taskRun) tell(n int, signal string, payload any) {
	if child := r.children[n]; child != nil {
		child.SignalChildWorkflow(r.ctx, signal, payload)
	}
}

// byTask is a verb that no person sent.
var byTask = VerbRequest{Via: "task"}

// stopRollouts has the rollouts of running items end where the stop says, in the name of who sent it.
func (r *taskRun) stopRollouts(ask plan.Command) {
	q := RolloutVerbRequest{To: rollout.StopTo(ask.To), VerbRequest: VerbRequest{Actor: ask.Actor, Reason: ask.Reason, Via: ask.Via}}
	for n, it := range r.in.Items {
		if it.RollOut && r.machine.Item(n) == plan.ItemRunning {
			r.tell(n, SignalItemStopRollouts, q)
		}
	}
}
