package workflows

import (
	"cmp"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workloadops"
)

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

// Serving is one operation on a serving: a creation, an update, a recreation or a deletion. The machine of release/serving decides; each
// party does one step at a time, on its own queue, beside the others. Temporal's Cancel means stop.
func Serving(ctx workflow.Context, in serving.Input) (ServingResult, error) {
	s := newServingRun(ctx, in)
	offerSignals(s.ctx,
		menuEntry{serving.SignalSupersede, "A newer operation on the serving waits for this one to give way."},
		menuEntry{serving.SignalPresence, "The worker of a party has gone away, or is back."},
		menuEntry{serving.SignalGaveWay, "The operation before this one has given way."})
	if err := s.offer(s.state, "What the operation does now, and why it does not go on."); err != nil {
		return ServingResult{}, err
	}
	if err := s.begin(); err != nil {
		return s.result, err
	}
	switch again, err := s.run(); {
	case err != nil:
		return ServingResult{}, err
	case again:
		return ServingResult{}, workflow.NewContinueAsNewError(s.ctx, TypeServing, s.next())
	}
	return s.result, nil
}

// servingRun is a running operation. Everything in it is touched by the workflow's coroutines only.
type servingRun struct {
	*loop[serving.Command]
	in serving.Input
	// self names the operation: the first of its runs. began is when that was.
	self    workloadops.Holder
	began   time.Time
	machine *serving.Machine
	result  ServingResult
	// running is what each party does now.
	running []*partyStep
	// spent is how many seconds of its deadline each has used beside others, for the step that it takes next.
	spent []int64
	// seen is what parties were seen to run when they had been brought to a version, until the status is told.
	seen []serving.ObserveRequest
	// waiting are the operations that wait for this one to give way.
	waiting []string
	// begun: the operation is the serving's now. noted: what the status was last told. released: a deleted serving was let go.
	begun    bool
	noted    serving.Outcome
	ending   *serving.Ending
	released bool
}

func newServingRun(ctx workflow.Context, in serving.Input) *servingRun {
	s := &servingRun{in: in, running: make([]*partyStep, len(in.Parties)), spent: make([]int64, len(in.Parties)),
		loop: newLoop(ctx, servingMenu, serving.Command{Verb: serving.VerbStop, Reason: reasonCancelled}, TypeServing)}
	s.driver = s
	s.self = workloadops.Holder{WorkflowID: s.info.WorkflowExecution.ID, RunID: s.info.FirstRunID}
	s.began = s.info.WorkflowStartTime
	if state, told := workflow.GetTypedSearchAttributes(ctx).GetKeyword(AttributeState); told && s.version >= versionAtOnce {
		s.shown.state = state // its workflow was started with that
	}
	if c := in.Continued; c != nil {
		s.began, s.begun, s.waiting, s.released = c.Began, c.Begun, c.Waiting, c.Released
		s.adopt(serving.ResumeMachine(in, c.State))
		if s.version < versionCreatesAtOnce {
			s.machine.Apart(serving.ThroughUnknown)
		}
		s.noted = s.machine.Outcome()
		s.resumes()
	}
	return s
}

// claim is what stands on the parties' Deployments while the operation changes them.
func (s *servingRun) claim() string {
	holder := s.self
	holder.Engine = s.in.Engine
	return holder.String()
}

// adopt has a machine decide from now on.
func (s *servingRun) adopt(m *serving.Machine) {
	m.SetRun(s.self.String())
	s.machine, s.loop.machine = m, m
}

// adoptNew has a new machine decide, unless one does already. A recreation undoes what others have done to the serving.
func (s *servingRun) adoptNew() {
	if s.machine != nil {
		return
	}
	s.adopt(serving.NewMachine(s.in, workflow.Now(s.ctx)))
	if s.in.Kind == serving.KindRecreate {
		s.meter.restored(1)
	}
}

func (s *servingRun) state() (ServingState, error) {
	state := ServingState{ID: s.in.ID, Kind: s.in.Kind, Generation: s.in.Generation, Message: s.result.Message, Ending: s.ending}
	if s.machine != nil {
		state.Stage, state.Message = s.machine.Stage(), cmp.Or(s.result.Message, s.machine.Message())
		state.WaitingFor, state.History = s.machine.WaitingFor(), s.machine.History()
	}
	return state, nil
}

// begin writes down that the operation has begun and waits until its predecessor has given way.
func (s *servingRun) begin() error {
	if s.begun {
		return nil
	}
	var found serving.BeginResult
	note := s.note(s.operation())
	note.Parties, note.Previous = s.in.Parties, s.in.PreviousDigest
	if s.version < versionAtOnce || !atOnce(s.ctx, serving.ActivityBegin, note, &found) {
		if err := perform(withActivity(s.ctx, centreForever, "begin to "+s.in.Kind), serving.ActivityBegin, note, &found); err != nil {
			return err
		}
	}
	switch {
	case found.Gone:
		s.dismiss("the serving is not there any more")
		return nil
	case found.Newer:
		s.dismiss("its spec has been changed again, which is for a newer operation")
		return nil
	case found.Served != nil:
		s.onServed(*found.Served)
		return nil
	case found.Unrecorded != "":
		workflow.GetLogger(s.ctx).Error("the record could not be written", "serving", s.in.ID, "error", found.Unrecorded)
	}
	s.begun = found.Predecessor == nil || s.awaitPredecessor(*found.Predecessor)
	s.anew = !s.begun
	s.result.Message = ""
	s.adoptNew()
	if s.begun {
		s.machine.Start(workflow.Now(s.ctx))
	}
	if found.Predecessor != nil {
		s.machine.Inherit()
	}
	s.noted = serving.Outcome{Version: s.in.TargetDigest} // what people have sent meanwhile is not told yet
	return nil
}

// dismiss ends an operation that has nothing to do.
func (s *servingRun) dismiss(why string) {
	s.result.Message, s.dismissed = why, "the operation has nothing to do: "+why
}

// onServed has a next run begin on the version that serves by now: parties read versions from the first event of a run.
func (s *servingRun) onServed(served kuscia.Served) {
	in, wrong := s.in.On(served)
	if wrong != "" {
		s.dismiss(wrong) // the server looks at the serving again, and says so in the status
		return
	}
	s.in, s.anew = in, true
	s.adoptNew()
}

// awaitPredecessor asks the operation before this one to give way, and waits until it is over: two operations never work on the same
// parties. It says whether that is so: when the history is long, the next run asks.
func (s *servingRun) awaitPredecessor(p kuscia.Operation) (over bool) {
	if p.WorkflowID == s.self.WorkflowID { // an earlier one of this ID: only one is open at a time
		return true
	}
	s.result.Message = "waits for " + p.WorkflowID + " to give way"
	workflow.SetCurrentDetails(s.ctx, s.result.Message)
	by := serving.SupersedeSignal{By: s.self.WorkflowID, Generation: s.in.Generation}
	gaveWay := func() bool { return s.box.signalled(serving.SignalGaveWay) }
	for answered := false; !answered; {
		if historyIsLong(s.ctx) {
			return false
		}
		// No run is named: it may go on in a newer one meanwhile.
		if err := workflow.SignalExternalWorkflow(s.ctx, p.WorkflowID, "", serving.SignalSupersede, by).Get(s.ctx, nil); err != nil {
			return true // it is over
		}
		var err error
		if answered, err = workflow.AwaitWithTimeout(s.ctx, askAgain, gaveWay); err != nil {
			return true
		}
	}
	return true
}

// askAgain is after how long a predecessor is asked again to give way: somebody may have terminated it since.
const askAgain = time.Minute

func (s *servingRun) operation() kuscia.Operation {
	return kuscia.Operation{Kind: s.in.Kind, Generation: s.in.Generation,
		WorkflowID: s.self.WorkflowID, RunID: s.self.RunID, Version: s.in.TargetDigest}
}

// source is where versions are read: this run was started with them too.
func (s *servingRun) source(previous bool) serving.Source {
	return serving.Source{WorkflowID: s.self.WorkflowID, RunID: s.info.WorkflowExecution.RunID, Previous: previous}
}

func (s *servingRun) note(op kuscia.Operation) serving.NoteRequest {
	return serving.NoteRequest{ID: s.in.ID, UID: s.in.UID, Operation: op, Started: s.began, Source: s.source(false)}
}

func (s *servingRun) hasNews() bool {
	return slices.ContainsFunc(s.running, func(r *partyStep) bool { return r != nil && r.ended })
}

// settle tells the machine what the parties have done, and that one has been waited for long enough.
func (s *servingRun) settle(now time.Time, fired bool) {
	for _, i := range s.ended() {
		r := s.running[i]
		s.running[i] = nil
		step := r.step
		if step == serving.StepCreate {
			step = s.machine.Apart(r.through)
		}
		switch {
		case r.unanswered: // the machine says what it does now
		case r.err == nil:
			s.machine.Done(i, step, now)
			s.saw(i, r.seen, now)
		case r.stopped: // it says nothing of the party: a worker that is gone, for one, lets it run into its timeout
		case kindOf(r.err) == failure.Forbidden && step.Owed():
			// Its cluster answers: it is no party that is away, and the serving is not let go without it.
			s.machine.Failed(i, step, message(r.err), now)
		case kindOf(r.err).System():
			s.machine.Interrupted(i, step, failure.New(kindOf(r.err), "%s", message(r.err)), now)
		default:
			s.machine.Failed(i, step, message(r.err), now)
		}
	}
	if fired {
		s.machine.Tick(now)
	}
}

// ended are the parties whose step has ended, in their order. Of those that have ended it together, whoever has failed comes first: who is away does not keep the others from
// going on, and what a party has answered counts more than that it was thought to be away.
func (s *servingRun) ended() (parties []int) {
	for i, r := range s.running {
		if r != nil && r.ended {
			parties = append(parties, i)
		}
	}
	failed := func(i int) int {
		if r := s.running[i]; r.step == serving.StepCreate && r.err != nil {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(parties, func(a, b int) int { return failed(a) - failed(b) })
	return parties
}

// saw keeps for the status what a party was seen to run.
func (s *servingRun) saw(party int, seen *serving.Seen, now time.Time) {
	if seen == nil {
		return
	}
	p := s.in.Parties[party]
	of := serving.Observation{ID: s.in.ID, UID: s.in.UID, Domain: p.Domain, Deployment: p.Deployment, Seen: *seen}
	s.seen = append(s.seen, serving.ObserveRequest{ID: s.in.ID, Observations: []serving.Observation{of}, At: now})
}

// hear takes what the parties' presence is, and who waits for the operation to give way.
func (s *servingRun) hear(sent *signal, now time.Time) bool {
	var err error
	switch sent.SignalName {
	case serving.SignalPresence:
		var presence serving.PresenceSignal
		if err = decodePayload(sent.Arg, &presence); err == nil && s.machine != nil {
			s.machine.Presence(presence, now)
		}
	case serving.SignalSupersede:
		var by serving.SupersedeSignal
		if err = decodePayload(sent.Arg, &by); err == nil {
			if s.machine != nil {
				s.machine.Supersede(by)
			}
			if !slices.Contains(s.waiting, by.By) { // it asks again until it is answered
				s.waiting = append(s.waiting, by.By)
			}
		}
	case serving.SignalGaveWay: // it has been waited for
	default:
		return false
	}
	if err != nil {
		workflow.GetLogger(s.ctx).Warn("a signal that cannot be read is passed over", "signal", sent.SignalName, "error", err)
	}
	return true
}

func (s *servingRun) carryOut(e *envelope[serving.Command], now time.Time) (audit.Outcome, string) {
	return s.machine.Command(e.command, now)
}

func (s *servingRun) quiet() bool {
	return !slices.ContainsFunc(s.running, func(r *partyStep) bool { return r != nil })
}

// finished: nothing is left to do, and nothing runs.
func (s *servingRun) finished() bool { return s.begun && s.machine.Over() && s.quiet() }

// idle says that another run could go on: no party does anything.
func (s *servingRun) idle() bool { return s.machine != nil && s.quiet() && !s.finished() }

func (s *servingRun) over() bool { return s.dismissed != "" || s.ending != nil }

// rest is until when an absent party is waited for.
func (s *servingRun) rest() (until time.Time, summary string) {
	if s.begun && s.ending == nil {
		until, _ = s.machine.Deadline()
	}
	return until, "how long a party is waited for"
}

func (s *servingRun) next() any {
	in := s.in
	in.Continued = &serving.Continued{Began: s.began, Begun: s.begun, State: s.machine.State(), Waiting: s.waiting, Released: s.released}
	return in
}

// act starts what is wanted, stops what is not any more, and tells the status what has changed.
func (s *servingRun) act() {
	switch {
	case s.dismissed != "":
		s.farewell()
		return
	case !s.begun:
		return
	case s.finished():
		s.end()
		return
	}
	s.direct()
	if !s.machine.Over() && s.machine.Changed(s.noted) {
		s.tell(s.machine.Outcome(), nil)
	}
	if s.machine.Released() && !s.released {
		s.released = true
		s.release(nil)
	}
}

// direct has parties begin what they are wanted to do, and stops what is not wanted any more.
func (s *servingRun) direct() {
	drains := s.drains()
	if s.version >= versionCreatesAtOnce && s.in.IsOneGroup() && s.quiet() && !drains {
		s.machine.AtOnce(workflow.Now(s.ctx))
	}
	var begin []int
	for i, r := range s.running {
		wanted := s.machine.Wanted(i)
		switch {
		case r != nil && !r.stopped && (r.step != wanted || drains):
			r.stopped = true
			r.cancel()
		case r == nil && wanted != serving.StepNone && !drains:
			begin = append(begin, i)
		}
	}
	for _, group := range s.groups(begin) {
		s.start(group)
	}
}

// tell writes how the operation stands into the status; with an ending it is over, which its record is told too.
func (s *servingRun) tell(now serving.Outcome, ending *serving.Ending) {
	s.noted = now
	op := s.operation()
	op.Version, op.Reason, op.Message, op.Done = now.Version, now.Reason, now.Message, ending != nil
	op.WaitingFor, op.History = now.WaitingFor, now.History
	note := s.note(op)
	note.Parties = s.in.Parties
	note.Observed, s.seen = s.seen, nil
	note.Failures, note.Complete, note.Served, note.Ending = now.Failures, now.Complete, now.Served, ending
	s.write(serving.ActivityNote, "note how it stands", note)
}

// write has the centre write a note. One that is refused for good keeps nothing from going on.
func (s *servingRun) write(activity, summary string, note serving.NoteRequest) {
	if s.version >= versionAtOnce && atOnce(s.ctx, activity, note, nil) {
		return
	}
	if err := perform(withActivity(s.ctx, centreForever, summary), activity, note, nil); err != nil {
		workflow.GetLogger(s.ctx).Error("refused for good: "+summary, "serving", s.in.ID, "error", err)
	}
}

// release lets the KusciaDeployment go; with an ending nothing of it is left anywhere, which its record is told.
func (s *servingRun) release(ending *serving.Ending) {
	note := s.note(s.operation())
	note.Ending = ending
	s.write(serving.ActivityRelease, "let the serving go", note)
}

// end writes how the operation ended and tells whoever waits for it to give way. A command that comes meanwhile belongs to the record too.
func (s *servingRun) end() {
	if s.ending == nil || s.machine.Changed(s.noted) {
		ending, now := s.machine.Ending(workflow.Now(s.ctx)), s.machine.Outcome()
		s.result = ServingResult{Version: now.Version, Reason: now.Reason, Message: s.machine.Message()}
		s.conclude(ending, now)
		s.ending = &ending // queries are told afterwards: what is over is over for whoever reads it
	}
	s.farewell()
}

// conclude writes how the operation ended into its record and, where that is its own, into the status: what is deleted has none, and that
// of a superseded operation is the newer one's, which whoever writes it knows.
func (s *servingRun) conclude(ending serving.Ending, now serving.Outcome) {
	if s.in.Kind != serving.KindDelete {
		s.tell(now, &ending)
		return
	}
	s.noted = now
	s.release(&ending)
}

// farewell tells the operations that wait for this one that it has given way.
func (s *servingRun) farewell() {
	for len(s.waiting) > 0 {
		by := s.waiting[0]
		s.waiting = s.waiting[1:]
		if err := workflow.SignalExternalWorkflow(s.ctx, by, "", serving.SignalGaveWay, nil).Get(s.ctx, nil); err != nil {
			workflow.GetLogger(s.ctx).Warn("who waits could not be told", "workflow", by, "error", err)
		}
	}
}

func (s *servingRun) listed() listing {
	if s.dismissed != "" {
		return listing{state: string(serving.StageOver), untold: true}
	}
	now := listing{state: string(s.machine.Stage()), untold: s.ending != nil && s.shown.waits == ""}
	if w := s.machine.WaitingFor(); w != nil {
		now.waits, now.since = w.Kind, w.Since.Time
	}
	if s.ending != nil {
		now.ended = string(s.ending.State)
	}
	return now
}

func (s *servingRun) details() string {
	if s.dismissed != "" {
		return s.result.Message
	}
	return servingDetails(s.in, s.machine)
}
