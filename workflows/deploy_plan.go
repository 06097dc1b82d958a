package workflows

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/origin"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/window"
)

// DeployPlanResult is the outcome of a task; its record holds the whole task.
type DeployPlanResult struct {
	State  plan.TaskState `json:"state"`
	Reason string         `json:"reason"`
}

// DeployPlan is one execution of a deployment plan: waves of ServiceRelease children, in order. Verbs pause, resume and
// stop it.
//
// One loop owns all state. It takes commands from the inbox, starts the items that the machine allows, and publishes
// the state. Between two rounds it waits without a timer or polling. It runs on a disconnected context: Temporal's
// Cancel means stop, and running items finish.
func DeployPlan(ctx workflow.Context, in DeployPlanInput) (DeployPlanResult, error) {
	r := newTaskRun(ctx, in)
	state := func() (plan.Task, error) { return r.task, nil }
	if err := r.registerHandlers(state, "The whole task: its state, why, and each service."); err != nil {
		return DeployPlanResult{}, err
	}
	r.begin()
	switch again, err := r.run(); {
	case err != nil:
		return DeployPlanResult{}, err
	case again:
		if at := r.task.StartedAt; at != nil { // for later runs
			writeMemo(r.ctx, MemoStartedAt, *at)
		}
		return DeployPlanResult{}, workflow.NewContinueAsNewError(r.ctx, TypeDeployPlan, r.nextInput())
	case r.foreign:
		return DeployPlanResult{}, errOrigin(r.dismissed)
	}
	result := DeployPlanResult{State: r.task.State, Reason: r.task.Reason}
	if result.State == plan.TaskFailed {
		return result, temporal.NewNonRetryableApplicationError(result.Reason, TypeTaskFailed, nil)
	}
	return result, nil
}

// planMenu lists the verbs of a DeployPlan.
var planMenu = newMenu(func(verb plan.Verb, q TaskVerbRequest) plan.Command {
	return plan.Command{Verb: verb, Actor: q.Actor, Via: q.Via, Reason: q.Reason, Key: q.Key, To: string(q.To)}
}, validateTaskVerb,
	menuEntry{plan.VerbPause, `Let the services that are being released finish, then hold the rest. ` + planPayload},
	menuEntry{plan.VerbResume, `Go on after a pause or an interruption. ` + planPayload},
	menuEntry{plan.VerbStop, `Let the services that are being released finish, then end the task. ` + planPayload +
		` {"to":"stable"} also ends the rollouts that run: at stable, new or frozen.`},
	menuEntry{plan.VerbApprove,
		`Begin now instead of waiting for a release window. Payload: {"actor":"…","reason":"…"}; it needs a reason.`},
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

// taskRun is a running task. Only the workflow's coroutines access it.
type taskRun struct {
	*loop[plan.Command]
	in       DeployPlanInput
	machine  *plan.Machine
	task     plan.Task
	children []workflow.ChildWorkflowFuture
	// abandoned marks the items that were ordered to give up (SignalItemAbandon).
	abandoned           []bool
	recording, recorded bool
	// askingWindow is true while the task's times are evaluated.
	askingWindow bool
	// admitted is true once it is known that the engine has started the task, beginSettled once it is decided whether
	// the task may run.
	admitted, beginSettled bool
	// blocked are the running items whose pods do not come, the first one to report that first.
	blocked []blockedItem
}

// blockedItem is a running item whose pods are not created or do not start, with the reason and since when that is
// known.
type blockedItem struct {
	item   int
	reason string
	since  time.Time
}

func newTaskRun(ctx workflow.Context, in DeployPlanInput) *taskRun {
	r := &taskRun{
		loop:     newLoop(ctx, planMenu, plan.Command{Verb: plan.VerbStop, Reason: reasonCancelled}),
		in:       in,
		children: make([]workflow.ChildWorkflowFuture, len(in.Items)), abandoned: make([]bool, len(in.Items)),
	}
	services := make([]plan.ServiceStatus, len(in.Items))
	for n, it := range in.Items {
		services[n] = plan.ServiceStatus{ServiceID: it.ServiceID, Priority: it.Priority, Deployment: it.Deployment,
			Method: it.Method, State: plan.ItemPending, Reason: "waits for its turn",
			Workloads: []plan.WorkloadStatus{}, RollOut: it.RollOut}
	}
	r.machine = plan.NewMachine(services, in.MaxConcurrent, len(in.Times) > 0)
	r.driver, r.loop.machine = r, r.machine
	r.task = plan.Task{ID: in.Task, Plan: in.Plan, Comment: in.Comment, CreatedAt: in.CreatedAt, Services: services,
		RerunOf: in.RerunOf, ReverseOf: in.ReverseOf, Actor: in.Actor, ExecuteReason: in.Reason,
		Workflow: &audit.WorkflowRef{ID: r.info.WorkflowExecution.ID, RunID: r.info.WorkflowExecution.RunID}}
	if in.State != nil {
		r.machine.Memory = in.State.Machine
		r.task.StartedAt, r.task.Services, r.task.Interruptions = in.State.StartedAt, in.State.Services,
			in.State.Interruptions
		r.resumeListing()
	}
	return r
}

// idle reports whether the task can continue as new: running items report to this run only.
func (r *taskRun) idle() bool {
	return r.beginSettled && !r.machine.Finished() && r.machine.Running() == 0 && !r.askingWindow
}

func (r *taskRun) done() bool { return r.recorded || r.dismissed != "" }

// nextWake: a task waits for messages and for its release windows only.
func (r *taskRun) nextWake() (until time.Time, summary string) {
	if wait := r.machine.Waiting(); wait != nil && wait.Until != nil && !r.askingWindow {
		return *wait.Until, "until a release window opens"
	}
	return time.Time{}, ""
}

func (r *taskRun) nextInput() any {
	in := r.in
	t := r.task
	in.State = &DeployPlanState{Machine: r.machine.Memory, StartedAt: t.StartedAt, Services: t.Services,
		Interruptions: t.Interruptions}
	return in
}

// begin checks whether the engine has started this task, and whether it is the current one of its plan; a run that
// continues as new has been the current one. The loop keeps serving meanwhile.
func (r *taskRun) begin() {
	continues := r.in.State != nil
	r.checkOrigin(origin.Request{Kind: v1alpha1.KindTask, Record: v1alpha1.RecordName(v1alpha1.KindTask, r.in.Task),
		InputDigest: r.in.Digest()}, continues, func(ctx workflow.Context) func() {
		r.admitted = true
		if continues {
			return func() { r.beginSettled = true }
		}
		var result operation.BeginTaskResult
		err := perform(withActivity(ctx, centreForever, "check that this is the plan's live task"),
			operation.ActivityBeginTask, r.request(), &result)
		return func() { r.settleBegin(result, err) }
	})
}

func (r *taskRun) request() operation.TaskRequest {
	return operation.TaskRequest{Task: r.in.Task, Plan: r.in.Plan, RunID: r.task.Workflow.RunID}
}

// handleSignal takes the report of an item. It ignores a report that names no running item: it is late, or another
// client sent it.
func (r *taskRun) handleSignal(signal *signal, now time.Time) bool {
	if signal.SignalName != SignalItem {
		return false
	}
	var s ItemSignal
	if err := decodePayload(signal.Arg, &s); err != nil {
		workflow.GetLogger(r.ctx).Warn("ignored an item report that cannot be decoded", "error", err)
		return true
	}
	n := s.Item - 1
	if n < 0 || n >= len(r.task.Services) || r.machine.Item(n) != plan.ItemRunning {
		workflow.GetLogger(r.ctx).Warn("ignored a report for an item that is not running", "item", s.Item)
		return true
	}
	trouble := ""
	if s.Interrupted {
		trouble = s.Reason
	}
	r.unblock(n)
	if s.Blocked {
		r.blocked = append(r.blocked, blockedItem{n, s.Reason, now})
	} else {
		r.machine.Interrupted(n, trouble)
	}
	r.task.Services[n].Reason = s.Reason
	return true
}

// unblock records that an item does not wait for pods that do not come.
func (r *taskRun) unblock(n int) {
	r.blocked = slices.DeleteFunc(r.blocked, func(b blockedItem) bool { return b.item == n })
}

func (r *taskRun) settleBegin(result operation.BeginTaskResult, err error) {
	r.beginSettled = true
	switch {
	case err != nil: // begin is retried while the home cluster is unreachable: this is a final refusal
		r.machine.GiveUp(message(err))
	case result.Superseded != "":
		r.machine.GiveUp(fmt.Sprintf("task %s superseded this task before it began", result.Superseded))
	default:
		if len(r.in.Times) == 0 { // otherwise StartedAt is the start of the first service, which may be days later
			now := workflow.Now(r.ctx)
			r.task.StartedAt = &now
		}
		r.machine.Start()
	}
}

// act starts the items that may start, makes interrupted items give up when the task is stopping or has failed, and
// ends the task when no item is left.
func (r *taskRun) act() {
	if !r.admitted {
		return
	}
	now := workflow.Now(r.ctx)
	if !r.askingWindow && r.machine.NeedsWindowCheck(now) && !r.draining() {
		r.askOpening(now)
	}
	if next := r.machine.NextAt(now); len(next) > 0 && !r.draining() {
		for _, n := range next {
			r.startItem(n)
		}
	}
	if r.machine.State == plan.TaskStopping || r.machine.State == plan.TaskFailed {
		for _, n := range r.machine.InterruptedItems() {
			if !r.abandoned[n] {
				r.abandoned[n] = true
				r.signalItem(n, SignalItemAbandon, byTask)
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
		// If the task is terminated, its items continue on their own: they restore what they borrowed.
		ParentClosePolicy: parentClosePolicy,
		StaticSummary:     fmt.Sprintf("%s service %s, %s", it.Deployment, it.ServiceID, it.Method),
	})
	child := workflow.ExecuteChildWorkflow(ctx, TypeServiceRelease, ServiceReleaseInput{
		Task: r.in.Task, Plan: r.in.Plan, Item: n + 1, Outline: it,
		UnreachableBudgetSeconds: r.in.UnreachableBudgetSeconds,
		MaxConcurrentWorkloads:   r.in.MaxConcurrentWorkloads, Engine: r.in.Engine,
	})
	r.children[n] = child
	r.concurrently(func(ctx workflow.Context) func() {
		var result ServiceReleaseResult
		err := child.Get(ctx, &result)
		return func() { r.end(n, result, err) }
	})
}

func (r *taskRun) end(n int, result ServiceReleaseResult, err error) {
	if err != nil {
		result = ServiceReleaseResult{State: plan.ItemFailed, Workloads: []plan.WorkloadStatus{},
			Reason: fmt.Sprintf("its workflow ended without a result (%s): see workflow %s", message(err),
				r.itemWorkflowID(n))}
	}
	r.unblock(n)
	now := workflow.Now(r.ctx)
	s := &r.task.Services[n]
	s.State, s.Reason, s.FinishedAt, s.Workloads = result.State, result.Reason, &now, result.Workloads
	s.Package, s.Build = result.Package, result.Build
	if result.Abandoned {
		r.machine.Abandoned(n, result.Reason)
		return
	}
	r.machine.Ended(n, result.State, result.Reason)
}

// conclude writes the record once no item runs. Verbs that arrive meanwhile are still answered.
func (r *taskRun) conclude() {
	if !r.machine.Finished() || r.recording {
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
	workflow.Go(r.ctx, func(ctx workflow.Context) {
		err := perform(withActivity(ctx, centreForever, "write the record"), operation.ActivityCompleteRecord,
			r.request(), nil)
		if err != nil {
			workflow.GetLogger(ctx).Error("the record could not be written", "task", r.in.Task, "error", err)
		}
		r.recorded = true
	})
}

// show copies the machine's state into the task, which queries return.
func (r *taskRun) show() {
	r.noteInterruption()
	log := r.machine.Audit()
	r.task.State, r.task.Reason = r.machine.State, r.machine.Reason
	r.task.History, r.task.RefusalsDropped = log.Entries, log.RefusalsDropped
	r.task.WaitingFor = r.machine.Waiting()
}

// maxInterruptions bounds the list of a task's interruptions.
const maxInterruptions = 100

// noteInterruption records when the task became and ceased to be Interrupted, for the task report.
func (r *taskRun) noteInterruption() {
	was, is := r.task.State == plan.TaskInterrupted, r.machine.State == plan.TaskInterrupted
	now := workflow.Now(r.ctx)
	switch last := len(r.task.Interruptions) - 1; {
	case is && !was && last < maxInterruptions:
		r.task.Interruptions = append(r.task.Interruptions, plan.Interruption{At: now, Reason: r.machine.Reason})
	case is && was && last >= 0:
		r.task.Interruptions[last].Reason = r.machine.Reason
	case was && !is && last >= 0:
		r.task.Interruptions[last].Until = &now
	}
}

// WaitingForResume is the SlipwayWaitingFor of a task that waits for the verb resume.
const WaitingForResume = "resume"

func (r *taskRun) listed() listing {
	r.show()
	l := listing{state: string(r.task.State), skipPublish: r.foreign}
	switch r.task.State {
	case plan.TaskPaused, plan.TaskInterrupted:
		l.waitingFor = WaitingForResume
		fallthrough
	case plan.TaskPausing, plan.TaskStopping:
		l.memo = &Shown{State: l.state, Reason: r.task.Reason}
	case plan.TaskRunning:
		if wait := r.task.WaitingFor; wait != nil {
			l.waitingFor, l.since, l.memo = wait.Kind, wait.Since, &Shown{State: l.state, Reason: r.task.Reason}
		} else if len(r.blocked) > 0 {
			first := r.blocked[0]
			l.waitingFor, l.since = string(rollout.WaitPods), first.since
			l.memo = &Shown{State: l.state, Reason: r.task.Reason + "; " + first.reason}
		}
	}
	return l
}

func (r *taskRun) details() string {
	return taskDetails(r.task, workflow.Now(r.ctx).UTC().Truncate(time.Second))
}

// carryOut passes a verb to the machine. An interrupted task may resume only if no newer task of the plan runs.
func (r *taskRun) carryOut(e *envelope[plan.Command], _ time.Time) (audit.Outcome, string) {
	ask := e.command
	repeated := r.machine.Audit().HasKey(ask.Key)
	if ask.Verb == plan.VerbResume && r.machine.State == plan.TaskInterrupted && !repeated {
		ask.Prevented = r.prevented()
	}
	held := r.machine.InterruptedItems()
	outcome, text := r.machine.Command(ask, workflow.Now(r.ctx))
	if outcome == audit.Accepted && ask.Verb == plan.VerbResume && !repeated {
		for _, n := range held {
			r.signalItem(n, SignalItemResume, byTask)
		}
	}
	if outcome == audit.Accepted && ask.To != "" && !repeated {
		r.stopRollouts(ask)
	}
	r.show()
	return outcome, text
}

// prevented returns why an interrupted task cannot resume now; "" if it can.
func (r *taskRun) prevented() string {
	var result operation.BeginTaskResult
	again := r.request()
	again.Reclaim = true
	err := perform(withActivity(r.ctx, centreBriefly, "check that no newer task runs"), operation.ActivityBeginTask,
		again, &result)
	switch {
	case err != nil:
		return "cannot check whether a newer task runs: the home cluster does not answer (" + message(err) +
			"); send resume again when it does"
	case result.Superseded != "":
		return fmt.Sprintf("task %s superseded this task: stop this one", result.Superseded)
	}
	return ""
}

// signalItem signals a running item. If the child has closed meanwhile, the signal is lost and the child's result is
// already on its way.
func (r *taskRun) signalItem(n int, signal string, payload any) {
	if child := r.children[n]; child != nil {
		child.SignalChildWorkflow(r.ctx, signal, payload)
	}
}

// byTask marks a verb that the task sends by itself.
var byTask = VerbRequest{Via: "task"}

// stopRollouts sends the stop to the rollouts of running items, with its target and the sender's name.
func (r *taskRun) stopRollouts(ask plan.Command) {
	q := RolloutVerbRequest{To: rollout.StopTo(ask.To),
		VerbRequest: VerbRequest{Actor: ask.Actor, Reason: ask.Reason, Via: ask.Via}}
	for n, it := range r.in.Items {
		if it.RollOut && r.machine.Item(n) == plan.ItemRunning {
			r.signalItem(n, SignalItemStopRollouts, q)
		}
	}
}

// askOpening checks whether the task's times allow an item to begin now. The centre calculates it: calendars depend on
// time zone data that may differ during a replay. Only a task with times calls it.
func (r *taskRun) askOpening(now time.Time) {
	r.askingWindow = true
	r.concurrently(func(ctx workflow.Context) func() {
		var answer window.Answer
		question := window.Question{Times: r.in.Times, At: now}
		if err := perform(withActivity(ctx, centreForever, "is a release window open?"), window.ActivityNextOpening,
			question, &answer); err != nil {
			again := workflow.Now(ctx).Add(time.Minute)
			answer = window.Answer{Until: &again,
				Reason: "cannot determine whether a release window is open (" + message(err) + ")"}
		}
		return func() {
			r.askingWindow = false
			r.machine.SetWindow(answer, now)
		}
	})
}
