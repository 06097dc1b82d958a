package workflows

import (
	"cmp"
	"encoding/json"
	"time"

	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
)

// driver is what a type of workflow adds to the loop that all of them share: C are its commands.
type driver[C any] interface {
	// settle tells the machine what has come out of what ran, and whether its timer has fired.
	settle(now time.Time, fired bool)
	// hear takes a signal that is nobody's verb; false when the type knows no such signal.
	hear(s *signal, now time.Time) bool
	// carryOut hands a command to the machine.
	carryOut(e *envelope[C], now time.Time) (audit.Outcome, string)
	// act does what the machine wants now: it starts, stops, writes.
	act()
	// hasNews says that something that ran has ended.
	hasNews() bool
	// idle says that nothing runs, and nothing but a message or the clock is waited for: another run could go on from here.
	idle() bool
	// over says that nothing is left to be done, and nothing runs.
	over() bool
	// rest is until when nothing happens by itself; the zero time: for ever. The summary says what the timer is for.
	rest() (until time.Time, summary string)
	// next is the input of the run that goes on from here.
	next() any
	// listed is what lists show, details the page in the Temporal UI.
	listed() listing
	details() string
}

// reasonCancelled is the reason of the stop that a Cancel means.
const reasonCancelled = "the workflow was cancelled"

// loop runs a machine: one coroutine owns all state. It takes what comes in, does what the machine wants, answers, and shows what it does;
// between two rounds it waits without a poll. It runs on a disconnected context: Temporal's Cancel means stop.
type loop[C any] struct {
	// ctx is disconnected from root, which a Cancel cancels; stop is the command that this means.
	ctx, root workflow.Context
	stop      C
	cancelled bool
	info      *workflow.Info
	box       *inbox
	menu      menu[C]
	machine   audit.Machine[C]
	driver    driver[C]
	timer     *runningTimer
	// answers are the commands that were carried out and wait for what follows from them.
	answers []*envelope[C]
	shown   listing
	// anew has it go on in a new run in any case. dismissed is why nothing is to be done: commands are refused with it, without a record.
	anew      bool
	dismissed string
	// tooLarge says that what is to be remembered does not fit into the input of a next run: it ends in this one.
	tooLarge bool
	// version is that of the code by which the run goes: histories of before go by an earlier one.
	version workflow.Version
	meter   meter
}

// changeLoop is the version gate of the loop, one for all that has changed: each costs two events.
const changeLoop = "settles-before-commands"

// The versions of the loop.
const (
	// versionSettlesFirst knows what has ended before commands are heard.
	versionSettlesFirst workflow.Version = 1
	// versionLegs has a party's worker go from one rest of a rollout to the next by one activity.
	versionLegs workflow.Version = 2
	// versionBriefRests has a leg wait out the rests that are soon over.
	versionBriefRests workflow.Version = 3
	// versionAtOnce has an operation on a serving write how it begins and ends by local activities.
	versionAtOnce workflow.Version = 4
	// versionKeepsParts has a rollout go on with what a leg has done whose worker died while it was being cancelled.
	versionKeepsParts workflow.Version = 5
	// versionOneWrite has a rollout's claim and the first of its Move be one write, and has whatever ends a rollout stop its first leg.
	versionOneWrite workflow.Version = 6
	// versionChecksTogether has the rollouts of a queue be checked by one activity before they start.
	versionChecksTogether workflow.Version = 7
	// versionPartiesTogether has the parties of a queue take a step of an operation on a serving by one activity.
	versionPartiesTogether workflow.Version = 8
	// versionCreatesAtOnce has the parties of a creation that have one queue be asked and brought to the version by one activity.
	versionCreatesAtOnce workflow.Version = 9
)

// versionsOf are the versions of the loop by which the workflows of a type have gone, oldest first.
var versionsOf = map[string][]workflow.Version{
	TypeDeployPlan: {versionSettlesFirst},
	TypeRollout:    {versionSettlesFirst, versionLegs, versionBriefRests, versionKeepsParts, versionOneWrite},
	TypeServing:    {versionSettlesFirst, versionAtOnce, versionPartiesTogether, versionCreatesAtOnce},
	TypePreflight:  {versionChecksTogether},
}

// HistoryLevel is the newest of these versions: up to which this build replays what another one has recorded. It is part of the build's ID (release/upgrade).
const HistoryLevel = int(versionCreatesAtOnce)

// Recording has workflows that begin go by the newest version of their type up to this level, so that a build which is older than this one can go
// on with them. What has been recorded stays.
func Recording(level func() int) worker.PreferredVersionProvider {
	return func(in worker.PreferredVersionProviderInput) *worker.VersionPreference {
		if in.ChangeID != changeLoop {
			return nil
		}
		chosen := workflow.DefaultVersion
		for _, v := range versionsOf[in.WorkflowInfo.WorkflowType.Name] {
			if v <= workflow.Version(level()) {
				chosen = v
			}
		}
		return &worker.VersionPreference{Version: chosen}
	}
}

type runningTimer struct {
	until  time.Time
	cancel workflow.CancelFunc
	fired  bool
}

// newLoop is a loop that goes by the newest version of its workflow's type if its run begins now, but for Recording.
func newLoop[C any](ctx workflow.Context, menu menu[C], stop C, kind string) *loop[C] {
	detached, _ := workflow.NewDisconnectedContext(ctx)
	info, versions := workflow.GetInfo(ctx), versionsOf[kind]
	return &loop[C]{root: ctx, ctx: detached, info: info, meter: newMeter(detached, info), box: inboxOf(ctx), menu: menu, stop: stop,
		version: workflow.GetVersion(ctx, changeLoop, workflow.DefaultVersion, versions[len(versions)-1])}
}

// run runs the machine until nothing is left to be done; again says that another run goes on with the driver's next.
//
// When it leaves, every Update is answered and the inbox is looked at once more without yielding after that: no command is lost.
func (l *loop[C]) run() (again bool, err error) {
	again, err = l.rounds()
	l.meter.pass()
	if !again && err == nil {
		end := l.driver.listed()
		l.meter.finished(cmp.Or(end.ended, end.state))
	}
	return again, err
}

func (l *loop[C]) rounds() (again bool, err error) {
	for {
		l.serve()
		l.driver.act()
		l.keepTimer()
		l.answer()
		l.publish()
		if !l.driver.over() && !l.goesOn() {
			if err := workflow.Await(l.ctx, func() bool { return l.hasNews() || l.driver.over() }); err != nil {
				return false, err
			}
			continue
		}
		if err := workflow.Await(l.ctx, func() bool { return l.hasNews() || workflow.AllHandlersFinished(l.ctx) }); err != nil {
			return false, err
		}
		if !l.hasNews() {
			return !l.driver.over(), nil
		}
	}
}

// hasNews says that something wakes the loop.
func (l *loop[C]) hasNews() bool {
	return len(l.box.items) > 0 || l.root.Err() != nil && !l.cancelled || l.timer != nil && l.timer.fired || l.driver.hasNews()
}

// serve tells the machine what has ended and everything that was sent, oldest first.
func (l *loop[C]) serve() {
	if l.version >= versionSettlesFirst {
		l.letRun()
	}
	now := workflow.Now(l.ctx)
	fired := l.timer != nil && l.timer.fired
	if fired {
		l.timer = nil
	}
	l.driver.settle(now, fired)
	for item := l.box.take(); item != nil; item = l.box.take() {
		switch item := item.(type) {
		case *envelope[C]:
			l.handle(item)
		case *signal:
			if !l.driver.hear(item, now) {
				l.handle(l.menu.open(item))
			}
		}
	}
	if l.root.Err() != nil && !l.cancelled {
		l.cancelled = true
		l.handle(&envelope[C]{command: l.stop})
	}
}

// letRun lets everything run that can. The coroutine of an Update runs first of all, and that of an activity which has ended after the loop's: when a
// workflow task is made again after a crash, who has approved what was shown would be answered as if that were still under way.
func (l *loop[C]) letRun() {
	passed := false
	_ = workflow.Await(l.ctx, func() bool {
		was := passed
		passed = true
		return was
	})
}

// handle hands a command to the machine, unless it cannot be read.
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

// answer answers the commands that were carried out with the state that follows from them.
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

// keepTimer keeps the one timer that the machine needs.
func (l *loop[C]) keepTimer() {
	if l.driver.over() {
		return
	}
	until, summary := l.driver.rest()
	wanted := !until.IsZero() && !l.goesOn()
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
	future := workflow.NewTimerWithOptions(ctx, max(until.Sub(workflow.Now(l.ctx)), 0), workflow.TimerOptions{Summary: summary})
	workflow.Go(l.ctx, func(ctx workflow.Context) {
		t.fired = future.Get(ctx, nil) == nil
	})
}

// drainAt is at how many events nothing more begins until nothing runs: only then can another run go on. The server's limit is 51,200.
const drainAt = 20_000

// maxCarried is how large the input of a next run may be, in bytes: the server fails a workflow that sends more than 2 MiB at once.
const maxCarried = 1_900_000

// historyIsLong says that a workflow continues as new once nothing of it is under way: the server suggests it at 4,096 events or 4 MiB.
func historyIsLong(ctx workflow.Context) bool {
	return workflow.GetInfo(ctx).GetContinueAsNewSuggested()
}

// goesOn says that another run goes on from here.
func (l *loop[C]) goesOn() bool { return l.driver.idle() && (l.anew || l.drains()) }

// drains says that nothing more begins, since another run is to go on as soon as nothing runs.
func (l *loop[C]) drains() bool {
	long := workflow.GetInfo(l.ctx).GetCurrentHistoryLength() >= drainAt || historyIsLong(l.ctx) && l.driver.idle()
	return long && l.fits()
}

// fits says whether what is to be remembered can travel to a next run. It only grows.
func (l *loop[C]) fits() bool {
	if !l.tooLarge {
		input, err := json.Marshal(l.driver.next())
		l.tooLarge = err != nil || len(input) > maxCarried
	}
	return !l.tooLarge
}

// resumes has a run go on from where another one was: lists have been told.
func (l *loop[C]) resumes() {
	l.shown = l.driver.listed()
	l.meter.resume(l.shown.waits)
}
