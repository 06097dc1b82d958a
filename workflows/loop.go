package workflows

import (
	"cmp"
	"encoding/json"
	"time"

	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/origin"
)

// driver is what a workflow type adds to the common loop. C is the type of its commands.
type driver[C any] interface {
	// takeResults passes the results of finished activities to the machine, and whether its timer has fired.
	takeResults(now time.Time, fired bool)
	// takesInput reports whether the machine can take a command or signal now (an item of the inbox; nil: Temporal's
	// Cancel). If not, an activity that runs ends soon, and is stopped if necessary.
	takesInput(item any) bool
	// handleSignal processes a signal that is not a verb; false if the type has no such signal.
	handleSignal(s *signal, now time.Time) bool
	// carryOut passes a command to the machine.
	carryOut(e *envelope[C], now time.Time) (audit.Outcome, string)
	// act does what the machine wants next: it starts and stops activities and writes.
	act()
	// hasResult reports whether an activity or child has ended.
	hasResult() bool
	// idle reports whether no activity runs and only a message or the clock can continue the workflow: it may continue
	// as new.
	idle() bool
	// done reports whether no work is left and nothing runs.
	done() bool
	// nextWake returns when the machine has to be called next; the zero time means that it waits for a message. summary
	// describes the timer.
	nextWake() (until time.Time, summary string)
	// nextInput is the input of the next run (continue-as-new).
	nextInput() any
	// listed is what lists show; details is the page in Temporal's UI.
	listed() listing
	details() string
}

// reasonCancelled is the reason of the stop command that Temporal's Cancel triggers.
const reasonCancelled = "the workflow was cancelled"

// loop runs a machine; one coroutine owns all state. Each round takes input, does what the machine wants, answers
// commands and publishes the state. Between two rounds it waits without polling. It runs on a disconnected context:
// Temporal's Cancel means stop.
type loop[C any] struct {
	// ctx is disconnected from root, which Temporal's Cancel cancels. stop is the command that a Cancel triggers.
	ctx, root workflow.Context
	stop      C
	cancelled bool
	// deferred is true while commands and signals wait for the end of an activity.
	deferred bool
	info     *workflow.Info
	box      *inbox
	menu     menu[C]
	machine  audit.Machine[C]
	driver   driver[C]
	timer    *runningTimer
	// answers are executed commands whose response is still to be sent. results take what has ended since the last
	// round, oldest first.
	answers []*envelope[C]
	results []func()
	shown   listing
	// forceNewRun makes the workflow continue as new when it is idle. dismissed is why the workflow has no work;
	// commands are refused with it and not recorded.
	forceNewRun bool
	dismissed   string
	// foreign is true if the engine has not started the workflow, and dismissed says why: it is not counted.
	foreign bool
	// tooLarge is true when the state does not fit into the input of a next run: the workflow ends in this run.
	tooLarge bool
	meter    meter
}

type runningTimer struct {
	until  time.Time
	cancel workflow.CancelFunc
	fired  bool
}

func newLoop[C any](ctx workflow.Context, menu menu[C], stop C) *loop[C] {
	detached, _ := workflow.NewDisconnectedContext(ctx)
	info := workflow.GetInfo(ctx)
	return &loop[C]{root: ctx, ctx: detached, info: info, meter: newMeter(detached, info), box: inboxOf(ctx),
		menu: menu, stop: stop}
}

// run runs the machine until no work is left. again means that the workflow continues as new with the driver's
// nextInput.
//
// When it returns, every Update is answered and the inbox was checked without yielding afterwards: no command is lost.
func (l *loop[C]) run() (again bool, err error) {
	again, err = l.rounds()
	l.meter.recordElapsed()
	if !again && err == nil && !l.foreign {
		end := l.driver.listed()
		l.meter.finished(cmp.Or(end.endState, end.state))
	}
	return again, err
}

func (l *loop[C]) rounds() (again bool, err error) {
	for {
		l.processInput()
		l.driver.act()
		l.updateTimer()
		l.answer()
		l.publish()
		if !l.driver.done() && !l.continuesAsNew() {
			if err := workflow.Await(l.ctx, func() bool { return l.mustWake() || l.driver.done() }); err != nil {
				return false, err
			}
			continue
		}
		if err := workflow.Await(l.ctx, func() bool {
			return l.mustWake() || workflow.AllHandlersFinished(l.ctx)
		}); err != nil {
			return false, err
		}
		if !l.mustWake() {
			return !l.driver.done(), nil
		}
	}
}

// mustWake reports whether the loop has something to process.
func (l *loop[C]) mustWake() bool {
	return l.hasInput() && !l.deferred || l.timer != nil && l.timer.fired || len(l.results) > 0 || l.driver.hasResult()
}

// concurrently runs do beside the loop. When it has ended, the loop's next round calls what it returned.
func (l *loop[C]) concurrently(do func(ctx workflow.Context) (take func())) {
	workflow.Go(l.ctx, func(ctx workflow.Context) {
		take := do(ctx) // meanwhile others add results
		l.results = append(l.results, take)
	})
}

// checkOrigin checks beside the loop that the engine has started the workflow, and then calls do, unless the workflow
// is dismissed. Commands that arrive meanwhile are taken: they change only the machine.
func (l *loop[C]) checkOrigin(asked origin.Request, continues bool, do func(ctx workflow.Context) (take func())) {
	l.concurrently(func(ctx workflow.Context) func() {
		if refusal := checkOrigin(ctx, asked, continues); refusal != "" {
			return func() { l.dismissed, l.foreign = refusal, true }
		}
		return do(ctx)
	})
}

// takeResults and hasResult are those of a driver that uses only concurrently.
func (l *loop[C]) takeResults(time.Time, bool) {}
func (l *loop[C]) hasResult() bool             { return false }

// hasInput reports whether there are commands or signals, Temporal's Cancel included.
func (l *loop[C]) hasInput() bool { return len(l.box.items) > 0 || l.root.Err() != nil && !l.cancelled }

// takesInput is that of a driver whose machine can always take commands.
func (l *loop[C]) takesInput(any) bool { return true }

// processInput passes the results of finished activities to the machine, then the commands and signals, oldest first.
func (l *loop[C]) processInput() {
	l.yieldOnce()
	now := workflow.Now(l.ctx)
	fired := l.timer != nil && l.timer.fired
	if fired {
		l.timer = nil
	}
	results := l.results
	l.results = nil
	for _, take := range results {
		take()
	}
	l.driver.takeResults(now, fired)
	l.deferred = false
	for len(l.box.items) > 0 {
		if l.deferred = !l.driver.takesInput(l.box.items[0]); l.deferred {
			return
		}
		switch item := l.box.take().(type) {
		case *envelope[C]:
			l.handle(item)
		case *signal:
			if !l.driver.handleSignal(item, now) {
				l.handle(l.menu.readSignal(item))
			}
		}
	}
	if l.root.Err() != nil && !l.cancelled {
		if l.deferred = !l.driver.takesInput(nil); l.deferred {
			return
		}
		l.cancelled = true
		l.handle(&envelope[C]{command: l.stop})
	}
}

// yieldOnce lets all other coroutines run first. An Update's coroutine runs before the loop's, an ended activity's
// coroutine after it. Without this, a workflow task that is repeated after a crash would answer an approval as if the
// step were still in progress.
func (l *loop[C]) yieldOnce() {
	passed := false
	_ = workflow.Await(l.ctx, func() bool {
		was := passed
		passed = true
		return was
	})
}

// handle passes a command to the machine, or refuses one that cannot be read.
func (l *loop[C]) handle(e *envelope[C]) {
	switch {
	case l.dismissed != "":
		e.outcome, e.text = audit.Refused, l.dismissed
	case e.unreadable != "":
		l.machine.Refuse(e.command, e.unreadable, workflow.Now(l.ctx))
		l.meter.commanded(audit.Refused)
		return
	default:
		e.outcome, e.text = l.driver.carryOut(e, workflow.Now(l.ctx))
	}
	l.answers = append(l.answers, e)
}

// answer sets the response of each executed command, with the state after this round.
func (l *loop[C]) answer() {
	for _, e := range l.answers {
		l.meter.commanded(e.outcome)
		e.response = &VerbResponse{Outcome: e.outcome, Message: e.text, State: l.driver.listed().state}
		if l.dismissed == "" {
			e.response.Seq = l.machine.Audit().Seq
		}
	}
	l.answers = nil
}

// updateTimer starts, keeps or replaces the single timer.
func (l *loop[C]) updateTimer() {
	if l.driver.done() {
		return
	}
	until, summary := l.driver.nextWake()
	wanted := !until.IsZero() && !l.continuesAsNew()
	if l.timer != nil && (!wanted || !l.timer.until.Equal(until)) {
		l.timer.cancel()
		l.timer = nil
	}
	if !wanted || l.timer != nil {
		return
	}
	ctx, cancel := workflow.WithCancel(l.ctx)
	t := &runningTimer{until: until, cancel: cancel}
	l.timer = t
	future := workflow.NewTimerWithOptions(ctx, max(until.Sub(workflow.Now(l.ctx)), 0),
		workflow.TimerOptions{Summary: summary})
	workflow.Go(l.ctx, func(ctx workflow.Context) {
		t.fired = future.Get(ctx, nil) == nil
	})
}

// drainAt is the number of events from which nothing new is started, so that the workflow can continue as new. The
// server's limit is 51,200.
const drainAt = 20_000

// maxInputBytes is the maximum size of the next run's input. The server fails a workflow that sends more than 2 MiB at
// once.
const maxInputBytes = 1_900_000

// historyIsLong reports whether the server suggests continue-as-new, which it does at 4,096 events or 4 MiB.
func historyIsLong(ctx workflow.Context) bool {
	return workflow.GetInfo(ctx).GetContinueAsNewSuggested()
}

// continuesAsNew reports whether the workflow ends this run now and continues as new.
func (l *loop[C]) continuesAsNew() bool { return l.driver.idle() && (l.forceNewRun || l.draining()) }

// draining reports whether nothing new may start, because the workflow continues as new as soon as it is idle.
func (l *loop[C]) draining() bool {
	long := workflow.GetInfo(l.ctx).GetCurrentHistoryLength() >= drainAt || historyIsLong(l.ctx) && l.driver.idle()
	return long && l.stateFits()
}

// stateFits reports whether the state fits into the input of a next run. The state only grows, so a negative result is
// final.
func (l *loop[C]) stateFits() bool {
	if !l.tooLarge {
		input, err := json.Marshal(l.driver.nextInput())
		l.tooLarge = err != nil || len(input) > maxInputBytes
	}
	return !l.tooLarge
}

// resumeListing initialises what was last published in a run that continues another: the attributes and the memo are
// inherited.
func (l *loop[C]) resumeListing() {
	l.shown = l.driver.listed()
	l.meter.resume(l.shown.waitingFor)
}
