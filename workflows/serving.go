package workflows

import (
	"cmp"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/origin"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workload"
)

// ServingResult is the outcome of an operation on a serving.
type ServingResult struct {
	Version string `json:"version,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message"`
}

// ServingState is the answer to an operation's query `state`.
type ServingState struct {
	ID         string        `json:"id"`
	Kind       string        `json:"kind"`
	Generation int64         `json:"generation"`
	Stage      serving.Stage `json:"stage"`
	Message    string        `json:"message"`
	// WaitingFor is the user action that is awaited; nil if none is. History is what users have sent, oldest first.
	WaitingFor *kuscia.WaitingFor  `json:"waitingFor,omitempty"`
	History    []kuscia.AuditEntry `json:"history,omitempty"`
	// RefusalsDropped is the number of refused commands that History no longer has.
	RefusalsDropped int64 `json:"refusalsDropped,omitempty"`
	// Ending is how the operation ended; nil while it is in progress.
	Ending *serving.Ending `json:"ending,omitempty"`
}

// Serving is one operation on a serving: a creation, an update, a recreation or a deletion. The machine of
// release/serving decides; parties execute one step at a time, each on its own queue, concurrently. Temporal's Cancel
// means stop.
func Serving(ctx workflow.Context, in serving.Input) (ServingResult, error) {
	s := newServingRun(ctx, in)
	declareSignals(s.ctx,
		menuEntry{serving.SignalSupersede, "A newer operation on the serving waits for this one to end."},
		menuEntry{serving.SignalPresence, "The worker of a party has become unreachable or reachable."},
		menuEntry{serving.SignalGaveWay, "The operation before this one has ended."})
	if err := s.registerHandlers(s.state, "What the operation does now, and why it does not continue."); err != nil {
		return ServingResult{}, err
	}
	if err := s.begin(); err != nil {
		return s.result, err
	}
	switch again, err := s.run(); {
	case err != nil:
		return ServingResult{}, err
	case again:
		return ServingResult{}, workflow.NewContinueAsNewError(s.ctx, TypeServing, s.nextInput())
	}
	return s.result, nil
}

// servingRun is a running operation. Only the workflow's coroutines access it.
type servingRun struct {
	*loop[serving.Command]
	// Continued is what the next run needs too; its State is set for that run only. Begun is true once the operation owns
	// the serving.
	serving.Continued
	in serving.Input
	// self names the operation by its first run.
	self    workload.Holder
	machine *serving.Machine
	result  ServingResult
	// running is the current step of each party.
	running []*partyStep
	// spent is how much of the deadline of an unfinished step each party has already used.
	spent []spentTime
	// seen are observations of the parties that reached a version, until they are written into the status.
	seen []serving.ObserveRequest
	// lastWritten is the last outcome written into the status.
	lastWritten serving.Outcome
	ending      *serving.Ending
}

func newServingRun(ctx workflow.Context, in serving.Input) *servingRun {
	s := &servingRun{in: in, running: make([]*partyStep, len(in.Parties)), spent: make([]spentTime, len(in.Parties)),
		loop: newLoop(ctx, servingMenu, serving.Command{Verb: serving.VerbStop, Reason: reasonCancelled})}
	s.driver = s
	s.self = workload.Holder{WorkflowID: s.info.WorkflowExecution.ID, RunID: s.info.FirstRunID}
	s.Began = s.info.WorkflowStartTime
	if state, known := workflow.GetTypedSearchAttributes(ctx).GetKeyword(AttributeState); known {
		s.shown.state = state // the workflow was started with this state
	}
	if c := in.Continued; c != nil {
		s.Continued = *c
		s.adopt(serving.ResumeMachine(in, c.State))
		s.lastWritten = s.machine.Outcome()
		s.resumeListing()
	}
	return s
}

// claim is the claim on the parties' Deployments while the operation changes them.
func (s *servingRun) claim() string {
	holder := s.self
	holder.Engine = s.in.Engine
	return holder.String()
}

// adopt makes m the machine of this run.
func (s *servingRun) adopt(m *serving.Machine) {
	m.SetRun(s.self.String())
	s.machine, s.loop.machine = m, m
}

// adoptNew creates the machine unless there is one. A recreation counts as one restoration: another client changed the
// serving's objects.
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
	state := ServingState{ID: s.in.ID, Kind: s.in.Kind, Generation: s.in.Generation, Message: s.result.Message,
		Ending: s.ending}
	if s.machine != nil {
		state.Stage, state.Message = s.machine.Stage(), cmp.Or(s.result.Message, s.machine.Message())
		state.WaitingFor, state.History = s.machine.WaitingFor(), s.machine.History()
		state.RefusalsDropped = s.machine.Audit().RefusalsDropped
	}
	return state, nil
}

// begin records that the operation has begun and waits until its predecessor has ended.
func (s *servingRun) begin() error {
	if s.in.Continued != nil {
		if refusal := checkOrigin(s.ctx, origin.Request{}, true); refusal != "" {
			return errOrigin(refusal)
		}
	}
	if s.Begun {
		return nil
	}
	var found serving.BeginResult
	note := s.note(s.operation())
	note.Parties, note.Previous = s.in.Parties, s.in.PreviousDigest
	if err := s.askCentre(serving.ActivityBegin, "begin to "+s.in.Kind, note, &found); err != nil {
		return err
	}
	switch {
	case found.NotFound:
		s.dismiss("the serving was deleted")
		return nil
	case found.Outdated:
		s.dismiss("its spec has changed again: a newer operation handles it")
		return nil
	case found.Foreign != "":
		s.dismiss(found.Foreign)
		return nil
	case found.Served != nil:
		s.onServed(*found.Served)
		return nil
	case found.Unrecorded != "":
		workflow.GetLogger(s.ctx).Error("the record could not be written", "serving", s.in.ID, "error",
			found.Unrecorded)
	}
	s.Begun = found.Predecessor == nil || s.awaitPredecessor(*found.Predecessor)
	s.forceNewRun = !s.Begun
	s.result.Message = ""
	s.adoptNew()
	if s.Begun {
		s.machine.StartClock(workflow.Now(s.ctx))
	}
	if found.Predecessor != nil {
		s.machine.Inherit()
	}
	s.lastWritten = serving.Outcome{Version: s.in.TargetDigest} // commands received meanwhile are not written yet
	return nil
}

// dismiss ends an operation that has no work.
func (s *servingRun) dismiss(why string) {
	s.result.Message, s.dismissed = why, "the operation has nothing to do: "+why
}

// onServed makes the next run start from the version that serves by now: parties read versions from the first event of
// a run.
func (s *servingRun) onServed(served kuscia.Served) {
	in, wrong := s.in.WithServed(served)
	if wrong != "" {
		s.dismiss(wrong) // the server reconciles the serving again and reports it in the status
		return
	}
	s.in, s.forceNewRun = in, true
	s.adoptNew()
}

// awaitPredecessor asks the previous operation to give way and waits until it has ended: two operations never work on
// the same parties. It returns false if the history is long: the next run asks again.
func (s *servingRun) awaitPredecessor(p kuscia.Operation) (ended bool) {
	if p.WorkflowID == s.self.WorkflowID { // an earlier run of this ID: only one is open at a time
		return true
	}
	s.result.Message = "waits for " + p.WorkflowID + " to end"
	workflow.SetCurrentDetails(s.ctx, s.result.Message)
	by := serving.SupersedeSignal{By: s.self.WorkflowID, Generation: s.in.Generation}
	gaveWay := func() bool { return s.box.hasSignal(serving.SignalGaveWay) }
	for answered := false; !answered; {
		if historyIsLong(s.ctx) {
			return false
		}
		// No run is named: the predecessor may have continued as new.
		if err := workflow.SignalExternalWorkflow(s.ctx, p.WorkflowID, "", serving.SignalSupersede, by).Get(s.ctx,
			nil); err != nil {
			return true // it has closed
		}
		var err error
		if answered, err = workflow.AwaitWithTimeout(s.ctx, supersedeRetry, gaveWay); err != nil {
			return true
		}
	}
	return true
}

// supersedeRetry is the interval for asking the predecessor again: it may have been terminated meanwhile.
const supersedeRetry = time.Minute

func (s *servingRun) operation() kuscia.Operation {
	return kuscia.Operation{Kind: s.in.Kind, Generation: s.in.Generation,
		WorkflowID: s.self.WorkflowID, RunID: s.self.RunID, Version: s.in.TargetDigest}
}

// source names the run from which parties read the versions: its input contains them.
func (s *servingRun) source(previous bool) serving.Source {
	return serving.Source{WorkflowID: s.self.WorkflowID, RunID: s.info.WorkflowExecution.RunID, Previous: previous}
}

func (s *servingRun) note(op kuscia.Operation) serving.NoteRequest {
	return serving.NoteRequest{ID: s.in.ID, UID: s.in.UID, Operation: op, Started: s.Began, Source: s.source(false)}
}

func (s *servingRun) hasResult() bool {
	return slices.ContainsFunc(s.running, func(r *partyStep) bool { return r != nil && r.ended })
}

// takeResults passes the results of the parties' steps to the machine, and whether the wait for a party has timed out.
// Parties that failed a StepCreate are first: an unreachable party must not delay the others, and a party's own error
// counts more than a presumed absence.
func (s *servingRun) takeResults(now time.Time, fired bool) {
	for _, failed := range []bool{true, false} {
		for i, r := range s.running {
			if r != nil && r.ended && failed == (r.step == serving.StepCreate && r.outcome.Kind != "") {
				s.running[i] = nil
				s.takeResult(i, r, now)
			}
		}
	}
	if fired {
		s.machine.Tick(now)
	}
}

// takeResult passes the result of a party's step to the machine.
func (s *servingRun) takeResult(party int, r *partyStep, now time.Time) {
	step, o := r.step, r.outcome
	if step == serving.StepCreate {
		step = s.machine.EndSingleStep(r.through)
	}
	switch {
	case o.Done:
		s.machine.Done(party, step, now)
		s.recordSeen(party, o.Snapshot, now)
	case r.stopped: // the outcome says nothing about the party: with a dead worker, for example, it is a timeout
	case o.Unfinished: // the machine decides its next step
		s.spent[party] = spentTime{step, o.SpentSeconds}
	// If it lacks the permission to clean up, the party is not unreachable, since its cluster answers, and the serving
	// must not be released.
	case o.Kind.System() && (o.Kind != failure.Forbidden || !step.MustSucceed()):
		s.machine.Interrupted(party, step, failure.New(o.Kind, "%s", o.Message), now)
	default:
		s.machine.Failed(party, step, o.Message, now)
	}
}

// recordSeen keeps what a party was seen to run, for the status.
func (s *servingRun) recordSeen(party int, seen *serving.DeploymentSnapshot, now time.Time) {
	if seen == nil {
		return
	}
	p := s.in.Parties[party]
	of := serving.Observation{ID: s.in.ID, UID: s.in.UID, Domain: p.Domain, Deployment: p.Deployment, Snapshot: *seen}
	s.seen = append(s.seen, serving.ObserveRequest{ID: s.in.ID, Observations: []serving.Observation{of}, At: now})
}

// handleSignal processes the parties' presence, and operations that wait for this one.
func (s *servingRun) handleSignal(sent *signal, now time.Time) bool {
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
			if !slices.Contains(s.Waiting, by.By) { // it repeats its request until it is answered
				s.Waiting = append(s.Waiting, by.By)
			}
		}
	case serving.SignalGaveWay: // awaited by awaitPredecessor
	default:
		return false
	}
	if err != nil {
		workflow.GetLogger(s.ctx).Warn("ignored a signal that cannot be decoded", "signal", sent.SignalName, "error",
			err)
	}
	return true
}

func (s *servingRun) carryOut(e *envelope[serving.Command], now time.Time) (audit.Outcome, string) {
	return s.machine.Command(e.command, now)
}

func (s *servingRun) quiet() bool {
	return !slices.ContainsFunc(s.running, func(r *partyStep) bool { return r != nil })
}

// allDone reports whether no work is left and no step runs.
func (s *servingRun) allDone() bool { return s.Begun && s.machine.Finished() && s.quiet() }

// idle reports whether the workflow may continue as new: no party executes a step.
func (s *servingRun) idle() bool { return s.machine != nil && s.quiet() && !s.allDone() }

func (s *servingRun) done() bool { return s.dismissed != "" || s.ending != nil }

// nextWake is the deadline of the wait for an unreachable party.
func (s *servingRun) nextWake() (until time.Time, summary string) {
	if s.Begun && s.ending == nil {
		until, _ = s.machine.Deadline()
	}
	return until, "deadline of an unreachable party"
}

func (s *servingRun) nextInput() any {
	in := s.in
	s.State = s.machine.State()
	in.Continued = new(s.Continued)
	return in
}

// act starts wanted steps, stops unwanted ones, and writes changes into the status.
func (s *servingRun) act() {
	switch {
	case s.dismissed != "":
		s.releaseWaiting()
		return
	case !s.Begun:
		return
	case s.allDone():
		s.end()
		return
	}
	s.startAndStop()
	if !s.machine.Finished() && s.machine.Changed(s.lastWritten) {
		s.writeStatus(s.machine.Outcome(), nil)
	}
	if s.machine.Released() && !s.Released {
		s.Released = true
		s.release(nil)
	}
}

// startAndStop starts the parties' wanted steps and stops those that are no longer wanted.
func (s *servingRun) startAndStop() {
	drains := s.draining()
	if s.in.IsOneGroup() && s.quiet() && !drains {
		s.machine.UseSingleStep(workflow.Now(s.ctx))
	}
	var begin []int
	for i, r := range s.running {
		wanted := s.machine.NextStep(i)
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

// writeStatus writes the operation's outcome into the status. With an ending the operation has ended, and the record is
// written too.
func (s *servingRun) writeStatus(now serving.Outcome, ending *serving.Ending) {
	s.lastWritten = now
	op := s.operation()
	op.Version, op.Reason, op.Message, op.Done = now.Version, now.Reason, now.Message, ending != nil
	op.WaitingFor, op.History, op.RefusalsDropped = now.WaitingFor, now.History, now.RefusalsDropped
	note := s.note(op)
	note.Parties = s.in.Parties
	note.Observed, s.seen = s.seen, nil
	note.Failures, note.Complete, note.Served, note.Ending = now.Failures, now.Complete, now.Served, ending
	s.write(serving.ActivityNote, "write the status", note)
}

// write makes the centre execute a write. A permanently refused write does not hold up the operation.
func (s *servingRun) write(activity, summary string, note serving.NoteRequest) {
	if err := s.askCentre(activity, summary, note, nil); err != nil {
		workflow.GetLogger(s.ctx).Error("refused permanently: "+summary, "serving", s.in.ID, "error", err)
	}
}

// askCentre executes an activity of the centre: as a local activity if that succeeds, because it costs one event.
func (s *servingRun) askCentre(activity, summary string, note serving.NoteRequest, result any) error {
	if tryLocally(s.ctx, activity, note, result) {
		return nil
	}
	return perform(withActivity(s.ctx, centreForever, summary), activity, note, result)
}

// release releases the KusciaDeployment. With an ending nothing of it is left at any party, and the record is written
// too.
func (s *servingRun) release(ending *serving.Ending) {
	note := s.note(s.operation())
	note.Ending = ending
	s.write(serving.ActivityRelease, "release the deleted serving", note)
}

// end writes how the operation ended into the record and into the status, and informs the operations that wait. The
// status of a superseded operation belongs to the newer one, which the writing activity checks. A command that arrives
// meanwhile is added to the record.
func (s *servingRun) end() {
	if s.ending == nil || s.machine.Changed(s.lastWritten) {
		ending, now := s.machine.Ending(workflow.Now(s.ctx)), s.machine.Outcome()
		s.result = ServingResult{Version: now.Version, Reason: now.Reason, Message: s.machine.Message()}
		if s.in.Kind == serving.KindDelete { // it has no status
			s.lastWritten = now
			s.release(&ending)
		} else {
			s.writeStatus(now, &ending)
		}
		s.ending = &ending // set last: a client that reads an ending finds it recorded
	}
	s.releaseWaiting()
}

// releaseWaiting informs the waiting operations that this one has ended.
func (s *servingRun) releaseWaiting() {
	for len(s.Waiting) > 0 {
		by := s.Waiting[0]
		s.Waiting = s.Waiting[1:]
		if err := workflow.SignalExternalWorkflow(s.ctx, by, "", serving.SignalGaveWay, nil).Get(s.ctx,
			nil); err != nil {
			workflow.GetLogger(s.ctx).Warn("could not signal a waiting operation", "workflow", by, "error", err)
		}
	}
}

func (s *servingRun) listed() listing {
	if s.dismissed != "" {
		return listing{state: string(serving.StageDone), skipPublish: true}
	}
	now := listing{state: string(s.machine.Stage()), skipPublish: s.ending != nil && s.shown.waitingFor == ""}
	if w := s.machine.WaitingFor(); w != nil {
		now.waitingFor, now.since = w.Kind, w.Since.Time
	}
	if s.ending != nil {
		now.endState = string(s.ending.State)
	}
	return now
}

func (s *servingRun) details() string {
	if s.dismissed != "" {
		return s.result.Message
	}
	return servingDetails(s.in, s.machine)
}
