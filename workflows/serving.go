package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workloadops"
)

// The workflow types of servings.
const (
	TypeServing       = "Serving"
	TypeServingStatus = serving.TypeStatus
	// TypeServingCheck has a party's worker that has just started look for what should be there.
	TypeServingCheck = serving.TypeCheck
)

// KindServing is the SlipwayKind of an operation on a serving. Its SlipwayState is the stage, SlipwayName the serving's ID.
const KindServing = "serving"

// ServingResult is how an operation on a serving ended.
type ServingResult struct {
	Version string `json:"version,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message"`
}

// ServingState answers the query `state` of an operation.
type ServingState struct {
	ID         string        `json:"id"`
	Kind       string        `json:"kind"`
	Generation int64         `json:"generation"`
	Stage      serving.Stage `json:"stage"`
	Message    string        `json:"message"`
	// WaitingFor is the person whom it waits for; nil when for nobody. History is what people have sent, oldest first.
	WaitingFor *kuscia.WaitingFor  `json:"waitingFor,omitempty"`
	History    []kuscia.AuditEntry `json:"history,omitempty"`
	// Ending is how it ended; nil while it is not over.
	Ending *serving.Ending `json:"ending,omitempty"`
}

// Serving is one operation on a serving: a creation, an update, a recreation or a deletion. The machine of release/serving decides; each party
// does one step at a time, on its own queue, beside the others. It runs on a disconnected context: Temporal's Cancel means stop.
func Serving(ctx workflow.Context, in serving.Input) (ServingResult, error) {
	detached, _ := workflow.NewDisconnectedContext(ctx)
	s := &servingRun{ctx: detached, in: in, info: workflow.GetInfo(ctx), box: inboxOf(ctx), running: make([]*partyStep, len(in.Parties))}
	if err := workflow.SetQueryHandlerWithOptions(s.ctx, QueryState, s.state,
		workflow.QueryHandlerOptions{Description: "What the operation does now, and why it does not go on."}); err != nil {
		return ServingResult{}, err
	}
	s.listen()
	if err := s.offerVerbs(); err != nil {
		return ServingResult{}, err
	}
	workflow.Go(s.ctx, func(wctx workflow.Context) {
		ctx.Done().Receive(wctx, nil)
		s.box.serving = append(s.box.serving, &servingCommand{command: serving.Command{Verb: serving.VerbStop, Reason: "the workflow was cancelled"}})
	})
	goes, err := s.begin()
	if err != nil {
		return s.result, err
	}
	if !goes {
		return s.result, s.dismiss()
	}
	for s.serve(); !s.finished(); s.serve() {
		s.act()
		s.answer()
		s.show()
		if err := workflow.Await(s.ctx, s.hasNews); err != nil {
			return ServingResult{}, err
		}
	}
	return s.end()
}

// servingRun is a running operation. Everything in it is touched by the workflow's coroutines only.
type servingRun struct {
	ctx     workflow.Context
	in      serving.Input
	info    *workflow.Info
	machine *serving.Machine
	result  ServingResult
	// box is what people send, answers the commands that were carried out and are to be answered.
	box     *inbox
	answers []*servingCommand
	// running is what each party does now.
	running []*partyStep
	// What others send; waiting are the operations that wait for this one to give way.
	superseded, presence, gaveWay workflow.ReceiveChannel
	waiting                       []string
	timer                         *runningTimer
	// noted is what the status was last told, ending how the operation ended; released says that a deleted serving was let go.
	noted    serving.Outcome
	ending   *serving.Ending
	released bool
	shown    shownServing
}

// shownServing is what lists were last told.
type shownServing struct {
	stage serving.Stage
	waits string
	since time.Time
}

// partyStep is what one party does.
type partyStep struct {
	step    serving.Step
	cancel  workflow.CancelFunc
	stopped bool
	ended   bool
	err     error
}

func (s *servingRun) state() (ServingState, error) {
	state := ServingState{ID: s.in.ID, Kind: s.in.Kind, Generation: s.in.Generation, Message: s.result.Message, Ending: s.ending}
	if s.machine != nil {
		state.Stage, state.Message = s.machine.Stage(), s.machine.Says()
		state.WaitingFor, state.History = s.machine.WaitingFor(), s.machine.History()
	}
	return state, nil
}

// listen opens the channels of what others send.
func (s *servingRun) listen() {
	s.superseded = workflow.GetSignalChannelWithOptions(s.ctx, serving.SignalSupersede,
		workflow.SignalChannelOptions{Description: "A newer operation on the serving waits for this one to give way."})
	s.presence = workflow.GetSignalChannelWithOptions(s.ctx, serving.SignalPresence,
		workflow.SignalChannelOptions{Description: "The worker of a party has gone away, or is back."})
	s.gaveWay = workflow.GetSignalChannelWithOptions(s.ctx, serving.SignalGaveWay,
		workflow.SignalChannelOptions{Description: "The operation before this one has given way."})
}

// begin writes down that the operation has begun and waits until its predecessor has given way. It says whether there is anything to do.
func (s *servingRun) begin() (goes bool, err error) {
	var found serving.BeginResult
	note := s.note(s.operation())
	note.Parties, note.Previous = s.in.Parties, s.in.PreviousDigest
	if err := workflow.ExecuteActivity(withActivity(s.ctx, centreForever, "begin to "+s.in.Kind), serving.ActivityBegin, note).Get(s.ctx, &found); err != nil {
		return false, err
	}
	switch {
	case found.Gone:
		s.result.Message = "the serving is not there any more"
		return false, nil
	case found.Newer:
		s.result.Message = "its spec has been changed again, which is for a newer operation"
		return false, nil
	case found.Served != nil:
		return false, s.onServed(*found.Served)
	case found.Unrecorded != "":
		workflow.GetLogger(s.ctx).Error("the record could not be written", "serving", s.in.ID, "error", found.Unrecorded)
	}
	if found.Predecessor != nil {
		s.awaitPredecessor(*found.Predecessor)
	}
	s.machine = serving.NewMachine(s.in, workflow.Now(s.ctx))
	s.machine.Name(workloadops.Holder{WorkflowID: s.info.WorkflowExecution.ID, RunID: s.info.WorkflowExecution.RunID}.String())
	if found.Predecessor != nil {
		s.machine.Inherit()
	}
	s.noted = s.machine.Outcome()
	return true, nil
}

// onServed begins anew on the version that has come to serve since the operation was started: the parties read versions from a workflow's first event.
func (s *servingRun) onServed(served kuscia.Served) error {
	in, wrong := s.in.On(served)
	if wrong != "" {
		s.result.Message = wrong // the server looks at the serving again, and says so in the status
		return nil
	}
	return workflow.NewContinueAsNewError(s.ctx, TypeServing, in)
}

// awaitPredecessor asks the operation before this one to give way, and waits until it is over: two operations never work on the same parties.
func (s *servingRun) awaitPredecessor(p kuscia.Operation) {
	s.result.Message = "waits for " + p.WorkflowID + " to give way"
	workflow.SetCurrentDetails(s.ctx, s.result.Message)
	by := serving.SupersedeSignal{By: s.info.WorkflowExecution.ID, Generation: s.in.Generation}
	for answered := false; !answered; {
		if err := workflow.SignalExternalWorkflow(s.ctx, p.WorkflowID, p.RunID, serving.SignalSupersede, by).Get(s.ctx, nil); err != nil {
			return // it is over
		}
		var err error
		if answered, err = workflow.AwaitWithTimeout(s.ctx, askAgain, func() bool { return s.gaveWay.Len() > 0 }); err != nil {
			return
		}
	}
}

// askAgain is after how long a predecessor is asked again to give way: somebody may have terminated it since.
const askAgain = time.Minute

func (s *servingRun) operation() kuscia.Operation {
	return kuscia.Operation{Kind: s.in.Kind, Generation: s.in.Generation, WorkflowID: s.info.WorkflowExecution.ID, RunID: s.info.WorkflowExecution.RunID,
		Version: s.in.TargetDigest}
}

func (s *servingRun) note(op kuscia.Operation) serving.NoteRequest {
	return serving.NoteRequest{ID: s.in.ID, UID: s.in.UID, Operation: op, Started: s.info.WorkflowStartTime,
		Source: serving.Source{WorkflowID: s.info.WorkflowExecution.ID, RunID: s.info.WorkflowExecution.RunID}}
}

// hasNews lists what wakes the loop.
func (s *servingRun) hasNews() bool {
	for _, r := range s.running {
		if r != nil && r.ended {
			return true
		}
	}
	return len(s.box.serving) > 0 || s.superseded.Len() > 0 || s.presence.Len() > 0 || s.timer != nil && s.timer.fired
}

// serve tells the machine what has happened.
func (s *servingRun) serve() {
	now := workflow.Now(s.ctx)
	for i, r := range s.running {
		if r == nil || !r.ended {
			continue
		}
		s.running[i] = nil
		switch {
		case r.err == nil:
			s.machine.Done(i, r.step, now)
		case r.stopped: // it says nothing of the party: a worker that is gone, for one, lets it run into its timeout
		case kindOf(r.err) == failure.Forbidden && r.step.Owed():
			s.machine.Failed(i, r.step, message(r.err), now) // its cluster answers: it is no party that is away, and the serving is not let go without it
		case kindOf(r.err).System():
			s.machine.Trouble(i, r.step, failure.New(kindOf(r.err), "%s", message(r.err)), now)
		default:
			s.machine.Failed(i, r.step, message(r.err), now)
		}
	}
	for signal := (serving.PresenceSignal{}); s.presence.ReceiveAsync(&signal); signal = (serving.PresenceSignal{}) {
		s.machine.Presence(signal, now)
	}
	s.hear()
	if s.timer != nil && s.timer.fired {
		s.timer = nil
		s.machine.Tick(now)
	}
	s.command(now)
}

// hear takes in who waits for the operation to give way.
func (s *servingRun) hear() {
	for signal := (serving.SupersedeSignal{}); s.superseded.ReceiveAsync(&signal); signal = (serving.SupersedeSignal{}) {
		s.machine.Supersede(signal)
		s.waiting = append(s.waiting, signal.By)
	}
}

// finished: nothing is left to do, and nothing runs.
func (s *servingRun) finished() bool {
	if !s.machine.Over() {
		return false
	}
	for _, r := range s.running {
		if r != nil {
			return false
		}
	}
	return true
}

// act starts what is wanted, stops what is not any more, and tells the status what has changed.
func (s *servingRun) act() {
	for i, r := range s.running {
		wanted := s.machine.Wanted(i)
		switch {
		case r != nil && r.step != wanted && !r.stopped:
			r.stopped = true
			r.cancel()
		case r == nil && wanted != serving.StepNone:
			s.start(i, wanted)
		}
	}
	if !s.machine.Over() && s.machine.News(s.noted) {
		s.tell(s.machine.Outcome(), nil)
	}
	if s.machine.Released() && !s.released {
		s.released = true
		s.release(nil)
	}
	s.await()
}

var stepActivity = map[serving.Step]string{
	serving.StepPrepare: serving.ActivityPrepare, serving.StepApply: serving.ActivityApply, serving.StepBack: serving.ActivityApply, serving.StepRemove: serving.ActivityRemove,
}

var stepSummary = map[serving.Step]string{
	serving.StepPrepare: "ask %s whether it can run it", serving.StepApply: "bring %s to the version asked", serving.StepBack: "bring %s back to the version of before",
	serving.StepRemove: "remove what %s runs",
}

// start has a party do a step, beside the loop. What is stopped ends before anything else begins there: two writers would undo each other.
func (s *servingRun) start(party int, step serving.Step) {
	target := s.in.Parties[party]
	ctx, cancel := workflow.WithCancel(s.ctx)
	running := &partyStep{step: step, cancel: cancel}
	s.running[party] = running
	options := partyRun(target.Queue, 0)
	options.WaitForCancellation = true
	request := serving.PartyRequest{
		ID: s.in.ID, UID: s.in.UID, Generation: s.in.Generation, Started: s.info.WorkflowStartTime.UnixMilli(), Domain: target.Domain, Deployment: target.Deployment, Version: s.in.TargetDigest,
		Source:          serving.Source{WorkflowID: s.info.WorkflowExecution.ID, RunID: s.info.WorkflowExecution.RunID, Previous: step == serving.StepBack},
		Claim:           workloadops.Holder{WorkflowID: s.info.WorkflowExecution.ID, RunID: s.info.WorkflowExecution.RunID}.String(),
		DeadlineSeconds: int64(s.in.Policy.ProgressDeadline() / time.Second), UnreachableBudgetSeconds: s.machine.Budget(party),
		Told: s.machine.Told(party),
	}
	if step == serving.StepBack {
		request.Version = s.in.PreviousDigest
	}
	ctx = withActivity(ctx, options, fmt.Sprintf(stepSummary[step], target.Name()))
	pause := s.machine.Again(party).Sub(workflow.Now(s.ctx))
	workflow.Go(ctx, func(ctx workflow.Context) {
		if pause > 0 {
			running.err = workflow.NewTimerWithOptions(ctx, pause, workflow.TimerOptions{Summary: "before " + target.Name() + " tries again"}).Get(ctx, nil)
		}
		if running.err == nil {
			running.err = workflow.ExecuteActivity(ctx, stepActivity[step], request).Get(ctx, nil)
		}
		running.ended = true
	})
}

// tell writes how the operation stands into the status; with an ending it is over, which its record is told too.
func (s *servingRun) tell(now serving.Outcome, ending *serving.Ending) {
	s.noted = now
	op := s.operation()
	op.Version, op.Reason, op.Message, op.Done = now.Version, now.Reason, now.Message, ending != nil
	op.WaitingFor, op.History = now.WaitingFor, now.History
	note := s.note(op)
	note.Parties = s.in.Parties
	note.Failures, note.Complete, note.Served, note.Ending = now.Failures, now.Complete, now.Served, ending
	err := workflow.ExecuteActivity(withActivity(s.ctx, centreForever, "note how it stands"), serving.ActivityNote, note).Get(s.ctx, nil)
	if err != nil {
		workflow.GetLogger(s.ctx).Error("the status of the serving, or its record, could not be written", "serving", s.in.ID, "error", err)
	}
}

// release lets the KusciaDeployment go; with an ending nothing of it is left anywhere, which its record is told.
func (s *servingRun) release(ending *serving.Ending) {
	note := s.note(s.operation())
	note.Ending = ending
	err := workflow.ExecuteActivity(withActivity(s.ctx, centreForever, "let the serving go"), serving.ActivityRelease, note).Get(s.ctx, nil)
	if err != nil {
		workflow.GetLogger(s.ctx).Error("the serving could not be let go, or its record could not be written", "serving", s.in.ID, "error", err)
	}
}

// await keeps the one timer that an absent party needs.
func (s *servingRun) await() {
	until, wanted := s.machine.Deadline()
	if s.timer != nil && (!wanted || !s.timer.until.Equal(until)) {
		s.timer.cancel()
		s.timer = nil
	}
	if !wanted || s.timer != nil {
		return
	}
	ctx, cancel := workflow.WithCancel(s.ctx)
	t := &runningTimer{until: until, cancel: cancel}
	s.timer = t
	future := workflow.NewTimerWithOptions(ctx, max(until.Sub(workflow.Now(s.ctx)), 0), workflow.TimerOptions{Summary: "how long a party is waited for"})
	workflow.Go(s.ctx, func(ctx workflow.Context) {
		t.fired = future.Get(ctx, nil) == nil
	})
}

// show tells Temporal's lists and its UI what the operation does. Lists are written on change only: each write is an event.
func (s *servingRun) show() {
	now := shownServing{stage: s.machine.Stage()}
	if w := s.machine.WaitingFor(); w != nil {
		now.waits, now.since = w.Kind, w.Since.Time
	}
	var updates []temporal.SearchAttributeUpdate
	if now.stage != s.shown.stage {
		updates = append(updates, AttributeState.ValueSet(string(now.stage)))
	}
	switch {
	case now.waits == s.shown.waits && now.since.Equal(s.shown.since):
	case now.waits == "":
		updates = append(updates, AttributeWaitingFor.ValueUnset(), AttributeWaitingSince.ValueUnset())
	default:
		updates = append(updates, AttributeWaitingFor.ValueSet(now.waits), AttributeWaitingSince.ValueSet(now.since))
	}
	s.shown = now
	if len(updates) > 0 {
		if err := workflow.UpsertTypedSearchAttributes(s.ctx, updates...); err != nil {
			workflow.GetLogger(s.ctx).Error("search attributes", "error", err)
		}
	}
	workflow.SetCurrentDetails(s.ctx, servingDetails(s.in, s.machine))
}

// end writes how the operation ended and answers whoever waits for it to give way, or for what became of a command. Nobody who asks while it closes is left
// waiting: a signal that comes before the end makes the server repeat the last step, and one that comes after it finds nobody.
func (s *servingRun) end() (ServingResult, error) {
	now := s.machine.Outcome()
	s.result = ServingResult{Version: now.Version, Reason: now.Reason, Message: s.machine.Says()}
	s.conclude()
	if s.shown.waits != "" { // what is over waits for nobody
		s.show()
	}
	for s.answer(); s.farewell(); s.answer() {
		s.command(workflow.Now(s.ctx))
		if s.machine.News(s.noted) {
			s.conclude()
		}
	}
	return s.result, nil
}

// conclude writes how the operation ended into its record and, where that is its own, into the status: what is deleted has none, and that of a superseded
// operation is the newer one's, which whoever writes it knows. Queries are told afterwards: what is over is over for whoever reads it.
func (s *servingRun) conclude() {
	ending, now := s.machine.Ending(workflow.Now(s.ctx)), s.machine.Outcome()
	if s.in.Kind == serving.KindDelete {
		s.noted = now
		s.release(&ending)
	} else {
		s.tell(now, &ending)
	}
	s.ending = &ending
}

// farewell tells the operations that wait for this one that it has given way, and waits until every command is answered. It says whether there are new ones.
func (s *servingRun) farewell() (more bool) {
	for s.hear(); len(s.waiting) > 0; s.hear() {
		by := s.waiting[0]
		s.waiting = s.waiting[1:]
		if err := workflow.SignalExternalWorkflow(s.ctx, by, "", serving.SignalGaveWay, nil).Get(s.ctx, nil); err != nil {
			workflow.GetLogger(s.ctx).Warn("who waits could not be told", "workflow", by, "error", err)
		}
	}
	asked := func() bool { return len(s.box.serving) > 0 || s.superseded.Len() > 0 }
	if err := workflow.Await(s.ctx, func() bool { return asked() || workflow.AllHandlersFinished(s.ctx) }); err != nil {
		return false
	}
	return asked()
}
