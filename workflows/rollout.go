package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/workloadops"
)

// TypeRolloutFailed is the error type of a Rollout workflow that closes in phase Failed, so that Temporal shows it as failed.
const TypeRolloutFailed = "RolloutFailed"

// RolloutResult is how a rollout ended; the whole status is in its record.
type RolloutResult struct {
	Phase  rollout.Phase `json:"phase"`
	Reason string        `json:"reason"`
}

// Rollout is one canary or blue-green release of one workload.
//
// One loop owns all state, and the machine of release/rollout decides: the loop tells it what was sent and what came out, asks what is to be
// done next, and does that; one activity, or one rest, at a time. It runs on a disconnected context: Temporal's Cancel means stop to stable.
func Rollout(ctx workflow.Context, in RolloutInput) (RolloutResult, error) {
	r := newRolloutRun(ctx, in)
	if err := r.offerVerbs(); err != nil {
		return RolloutResult{}, err
	}
	if err := workflow.SetQueryHandlerWithOptions(r.ctx, QueryState, func() (rollout.Status, error) { return r.machine.Status(), nil },
		workflow.QueryHandlerOptions{Description: "The whole rollout: its phase, why, and each step."}); err != nil {
		return RolloutResult{}, err
	}
	workflow.Go(r.ctx, func(wctx workflow.Context) {
		ctx.Done().Receive(wctx, nil)
		r.push(&rolloutCommand{command: rollout.Command{Verb: rollout.VerbStop, Via: "temporal", Reason: "the workflow was cancelled"}})
	})
	for {
		r.serve()
		if r.act() {
			if again, done := r.leave(); done {
				return r.result(again)
			}
			continue
		}
		if err := workflow.Await(r.ctx, r.hasNews); err != nil {
			return RolloutResult{}, err
		}
	}
}

// rolloutRun is a running rollout. Everything in it is touched by the workflow's coroutines only.
type rolloutRun struct {
	ctx     workflow.Context
	in      RolloutInput
	machine *machine.Machine
	box     *inbox
	info    *workflow.Info
	// next is what the machine asked for last; running and timer carry it out.
	next    machine.Action
	running *runningAction
	timer   *runningTimer
	// newer is the release that takes this one's place when it is over.
	newer *RolloutInput
	// answers are the commands that were carried out and wait for the state after them.
	answers []*rolloutCommand
	shown   shownRollout
}

// runningAction is an activity that is being carried out.
type runningAction struct {
	action  machine.Action
	cancel  workflow.CancelFunc
	stopped bool
	result  machine.Result
	err     error
	ended   bool
}

type runningTimer struct {
	until  time.Time
	cancel workflow.CancelFunc
	fired  bool
}

func newRolloutRun(ctx workflow.Context, in RolloutInput) *rolloutRun {
	detached, _ := workflow.NewDisconnectedContext(ctx)
	info := workflow.GetInfo(ctx)
	setup := machine.Setup{
		Spec:    in.Spec,
		Claim:   workloadops.Holder{WorkflowID: info.WorkflowExecution.ID, RunID: info.FirstRunID}.String(),
		Release: in.Record, CreatedAt: in.CreatedAt, Actor: in.Actor, Reason: in.Reason, Via: in.Via,
		Workflow:                 plan.WorkflowRef{ID: info.WorkflowExecution.ID, RunID: info.WorkflowExecution.RunID},
		UnreachableBudgetSeconds: in.UnreachableBudgetSeconds, BringHome: in.BringHome,
	}
	r := &rolloutRun{ctx: detached, in: in, box: inboxOf(ctx), info: info}
	if in.State == nil {
		r.machine = machine.NewMachine(setup, workflow.Now(ctx))
		return r
	}
	r.machine, r.newer = machine.ResumeMachine(setup, *in.State), in.Newer
	return r
}

func (r *rolloutRun) push(c *rolloutCommand) { r.box.rollout = append(r.box.rollout, c) }

// hasNews lists what wakes the loop: a command, an activity that ended, a rest that is over.
func (r *rolloutRun) hasNews() bool {
	return len(r.box.rollout) > 0 || r.running != nil && r.running.ended || r.timer != nil && r.timer.fired
}

// serve tells the machine what came out of the running activity and everything that was sent, oldest first.
func (r *rolloutRun) serve() {
	now := workflow.Now(r.ctx)
	if a := r.running; a != nil && a.ended {
		r.running = nil
		r.settle(a, now)
	}
	if r.timer != nil && r.timer.fired {
		r.timer = nil
	}
	for len(r.box.rollout) > 0 {
		c := r.box.rollout[0]
		r.box.rollout = r.box.rollout[1:]
		r.carryOut(c, now)
	}
}

func (r *rolloutRun) settle(a *runningAction, now time.Time) {
	switch {
	case a.err == nil:
		r.machine.Done(a.result, now)
	case a.stopped && temporal.IsCanceledError(a.err):
		r.machine.Stopped()
	default:
		r.machine.Failed(rolloutFailure(a, "party "+r.in.Spec.Workload().PartyOrDefault()), now)
	}
}

// act does what the machine asks for now, and shows it. It says whether nothing is left to be done, or the run is to be continued as new.
func (r *rolloutRun) act() (leaves bool) {
	defer r.answerAll()
	if r.running != nil {
		if r.machine.Interrupts() && !r.running.stopped {
			r.running.stopped = true
			r.running.cancel()
		}
		r.publish()
		return false
	}
	r.next = r.wanted()
	r.rest()
	if r.next.Activity() {
		r.machine.Start(r.next)
		r.start(r.next)
	}
	r.publish()
	return r.next.Kind == machine.ActClose || r.next.Kind == machine.ActSupersede || r.continuesAsNew()
}

// continuesAsNew: the history is long, and nothing but a message or the clock is waited for.
func (r *rolloutRun) continuesAsNew() bool {
	return r.running == nil && r.next.Kind == machine.ActRest && workflow.GetInfo(r.ctx).GetContinueAsNewSuggested()
}

// changeHalts is since when what is held comes to rest by an activity of its own. It is asked after only when there is one to be made.
const changeHalts = "rollout-halts"

// wanted is what the machine asks for now.
func (r *rolloutRun) wanted() machine.Action {
	now := workflow.Now(r.ctx)
	a := r.machine.Next(now)
	if a.Halts() && workflow.GetVersion(r.ctx, changeHalts, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		r.machine.SkipHalt()
		return r.machine.Next(now)
	}
	return a
}

// rest keeps the one timer that the machine's rest needs: none without an end.
func (r *rolloutRun) rest() {
	wanted := r.next.Kind == machine.ActRest && r.next.Until != nil && !r.continuesAsNew()
	if r.timer != nil && (!wanted || !r.timer.until.Equal(*r.next.Until)) {
		r.timer.cancel()
		r.timer = nil
	}
	if !wanted || r.timer != nil {
		return
	}
	ctx, cancel := workflow.WithCancel(r.ctx)
	t := &runningTimer{until: *r.next.Until, cancel: cancel}
	r.timer = t
	future := workflow.NewTimerWithOptions(ctx, t.until.Sub(workflow.Now(r.ctx)), workflow.TimerOptions{Summary: r.next.Summary})
	workflow.Go(r.ctx, func(ctx workflow.Context) {
		t.fired = future.Get(ctx, nil) == nil
	})
}

// leave waits until every Update is answered and looks into the inbox once more, without yielding after that: no command is lost.
// What is to go on as new is the input of the next run.
func (r *rolloutRun) leave() (again *RolloutInput, done bool) {
	if err := workflow.Await(r.ctx, func() bool { return workflow.AllHandlersFinished(r.ctx) }); err != nil {
		return nil, true
	}
	if r.machine.Over() {
		r.serve()
		r.answerAll()
		return r.newer, true
	}
	if len(r.box.rollout) > 0 {
		return nil, false
	}
	state := r.machine.State()
	again = &RolloutInput{}
	*again = r.in
	again.State, again.Newer = &state, r.newer
	return again, true
}

func (r *rolloutRun) result(again *RolloutInput) (RolloutResult, error) {
	if again != nil {
		return RolloutResult{}, workflow.NewContinueAsNewError(r.ctx, TypeRollout, *again)
	}
	s := r.machine.Status()
	result := RolloutResult{Phase: s.Phase, Reason: s.Reason}
	if s.Phase == rollout.PhaseFailed {
		return result, temporal.NewNonRetryableApplicationError(s.Reason, TypeRolloutFailed, nil)
	}
	return result, nil
}
