package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/window"
	"slipway.io/slipway/release/workloadops"
)

// RolloutResult is how a rollout ended; the whole status is in its record.
type RolloutResult struct {
	Phase  rollout.Phase `json:"phase"`
	Reason string        `json:"reason"`
	// Record is that of the release which ended: a newer one may have taken the place of the one that was started.
	Record string `json:"record,omitempty"`
	// FromRevision and FromPackage are the version that served before, ToRevision and ToPackage the new one, as far as they are known.
	FromRevision string `json:"fromRevision,omitempty"`
	ToRevision   string `json:"toRevision,omitempty"`
	FromPackage  string `json:"fromPackage,omitempty"`
	ToPackage    string `json:"toPackage,omitempty"`
	// Before and After are their revisions, by which a task takes them back.
	Before *revision.Revision `json:"before,omitempty"`
	After  *revision.Revision `json:"after,omitempty"`
}

// Rollout is one canary or blue-green release of a workload: one activity, or one rest, at a time. Temporal's Cancel means stop to stable.
func Rollout(ctx workflow.Context, in RolloutInput) (RolloutResult, error) {
	r := newRolloutRun(ctx, in)
	state := func() (rollout.Status, error) { return r.machine.Status(), nil }
	offered := r.offer(state, "The whole rollout: its phase, why, and each step.")
	if err := errors.Join(offered, r.answerUpdate(supersedeEntry, readSupersede), r.answerUpdate(detachEntry, readDetach),
		r.answerUpdate(replanEntry, readReplan)); err != nil {
		return RolloutResult{}, err
	}
	switch again, err := r.run(); {
	case err != nil:
		return RolloutResult{}, err
	case again:
		return RolloutResult{}, workflow.NewContinueAsNewError(r.ctx, TypeRollout, r.next())
	case r.newer != nil:
		return RolloutResult{}, workflow.NewContinueAsNewError(r.ctx, TypeRollout, *r.newer)
	}
	s := r.machine.Status()
	result := RolloutResult{Phase: s.Phase, Reason: s.Reason, Record: s.Record, FromRevision: s.StableRevision, ToRevision: s.CanaryRevision,
		FromPackage: s.StablePackage, ToPackage: s.Package,
		Before: &revision.Revision{Template: s.StableTemplateDigest, Name: s.StableRevision, Images: s.StableImages},
		After:  &revision.Revision{Template: s.TemplateDigest, Name: s.CanaryRevision, Images: s.Images}}
	if s.Phase == rollout.PhaseFailed {
		return result, temporal.NewNonRetryableApplicationError(s.Reason, TypeRolloutFailed, nil)
	}
	return result, nil
}

// rolloutRun is a running rollout. Everything in it is touched by the workflow's coroutines only.
type rolloutRun struct {
	*loop[rollout.Command]
	in      RolloutInput
	machine *machine.Machine
	// wanted is what the machine asked for last; running carries it out.
	wanted  machine.Action
	running *runningAction
	object  *objectPublisher
	// counted is how many entries of the history are counted (countRestorations).
	counted int64
	// newer is the release that takes this one's place when it is over.
	newer *RolloutInput
}

// runningAction is an activity that is being carried out.
type runningAction struct {
	action  machine.Action
	cancel  workflow.CancelFunc
	stopped bool
	result  machine.Result
	// leg is the leg that begins with the action, and gone what was done of it; nil: the activity is the action alone.
	leg   *machine.LegRequest
	gone  machine.LegResult
	err   error
	ended bool
}

func newRolloutRun(ctx workflow.Context, in RolloutInput) *rolloutRun {
	r := &rolloutRun{in: in, newer: in.Newer,
		loop: newLoop(ctx, rolloutMenu, rollout.Command{Verb: rollout.VerbStop, Via: "temporal", Reason: reasonCancelled}, TypeRollout)}
	self := r.info.WorkflowExecution
	claim := workloadops.Holder{WorkflowID: self.ID, RunID: r.info.FirstRunID, Engine: in.Engine}
	setup := machine.Setup{Asked: in.Asked, Claim: claim.String(), Workflow: plan.WorkflowRef{ID: self.ID, RunID: self.RunID},
		BriefRests: r.version >= versionBriefRests, OneWrite: r.version >= versionOneWrite}
	if in.State == nil {
		r.machine = machine.NewMachine(setup, workflow.Now(ctx))
	} else {
		r.machine = machine.ResumeMachine(setup, *in.State)
	}
	r.driver, r.loop.machine = r, r.machine
	r.counted = r.machine.Audit().Seq
	r.object = newObjectPublisher(r.ctx, r.machine)
	begins := in.State == nil && r.info.ContinuedExecutionRunID == ""
	switch {
	case in.State != nil:
		r.resumes()
	case begins && r.version >= versionLegs: // its workflow was started with that
		r.shown = listing{state: string(rollout.PhaseProgressing)}
	}
	return r
}

func (r *rolloutRun) hasNews() bool { return r.running != nil && r.running.ended || r.object.hasNews() }

// settle tells the machine what came out of the running activity.
func (r *rolloutRun) settle(now time.Time, _ bool) {
	r.object.settle(now)
	a := r.running
	if a == nil || !a.ended {
		return
	}
	r.running = nil
	switch {
	case a.leg != nil:
		r.machine.EndLeg(r.legEnd(a), now)
	case a.err == nil:
		r.machine.Done(a.result, now)
	case a.stopped && temporal.IsCanceledError(a.err):
		r.machine.Stopped()
	default:
		r.machine.Failed(r.failure(a.err), now)
	}
}

// legEnd is how a leg has ended. What was done of it travels with its failure, and with its cancellation.
func (r *rolloutRun) legEnd(a *runningAction) machine.LegEnd {
	end := machine.LegEnd{Parts: a.gone.Parts}
	var canceled *temporal.CanceledError
	var timeout *temporal.TimeoutError
	switch {
	case a.err == nil:
		return end
	case r.version >= versionKeepsParts && errors.As(a.err, &timeout): // its last attempt died when there was to be no other: it was being cancelled, say
		var told machine.LegProgress
		if timeout.HasLastHeartbeatDetails() && timeout.LastHeartbeatDetails(&told) == nil {
			end.Parts = told.Parts
		}
	case errors.As(a.err, &canceled):
		var gone machine.LegResult
		if canceled.HasDetails() && canceled.Details(&gone) == nil {
			end.Parts = gone.Parts
		} else { // cancelled between two attempts: the server answers for itself
			end.Unknown = r.version >= versionKeepsParts
		}
		if end.Stopped = a.stopped; a.stopped {
			return end
		}
	default:
		if raw := detailsOf(a.err).Leg; len(raw) > 0 && json.Unmarshal(raw, &end.Parts) != nil {
			end.Parts = nil
		}
	}
	end.Failure = new(r.failure(a.err))
	return end
}

// failure is how an activity of the party, or of the centre, has failed.
func (r *rolloutRun) failure(err error) machine.Failure {
	return rolloutFailure(err, "party "+r.in.Spec.Workload().PartyOrDefault())
}

// hear takes what the party's watch has noticed: a hint only, for the workload itself is looked at.
func (r *rolloutRun) hear(s *signal, now time.Time) bool {
	if s.SignalName != rollout.SignalObserved {
		return false
	}
	var o rollout.Observed
	if err := decodePayload(s.Arg, &o); err != nil {
		o = rollout.Observed{} // it is a hint all the same
	}
	r.machine.Observed(o, now)
	return true
}

// act does what the machine asks for now, and has the object show it.
func (r *rolloutRun) act() {
	r.actOnWorkload()
	r.object.publish()
	r.countRestorations()
}

// countRestorations counts what was put back since it was called last.
func (r *rolloutRun) countRestorations() {
	log, n := r.machine.Audit(), 0
	for _, e := range log.Entries[len(log.Entries)-int(min(log.Seq-r.counted, int64(len(log.Entries)))):] {
		if e.Verb == audit.Verb(machine.VerbRestored) {
			n++
		}
	}
	r.counted = log.Seq
	r.meter.restored(n)
}

func (r *rolloutRun) actOnWorkload() {
	if r.running != nil {
		if r.machine.Interrupts() && !r.running.stopped {
			r.running.stopped = true
			r.running.cancel()
		}
		return
	}
	r.wanted = r.machine.Next(workflow.Now(r.ctx))
	if r.wanted.Activity() {
		r.start(r.wanted)
	}
}

func (r *rolloutRun) idle() bool {
	return r.running == nil && r.wanted.Kind == machine.ActRest && r.object.idle()
}

func (r *rolloutRun) over() bool { return r.machine.Over() && r.object.idle() }

func (r *rolloutRun) rest() (until time.Time, summary string) {
	if r.running == nil && r.wanted.Kind == machine.ActRest && r.wanted.Until != nil { // whatever the object shows by now
		until = *r.wanted.Until
	}
	return until, r.wanted.Summary
}

func (r *rolloutRun) next() any {
	in, state := r.in, r.machine.State()
	in.State, in.Newer = &state, r.newer
	return in
}

// listed leaves out the short waits for pods and traffic: each write is an event.
func (r *rolloutRun) listed() listing {
	s := r.machine.Status()
	now := listing{state: string(s.Phase)}
	w := s.WaitingFor
	short := w == nil || w.Kind == rollout.WaitTraffic || w.Kind == rollout.WaitPods && !r.machine.Stuck() || r.starting(s) || w.Kind == rollout.WaitWindow && r.running != nil
	if !short {
		now.waits, now.since, now.memo = string(w.Kind), w.Since, &Shown{State: now.state, Reason: s.Reason, WaitingFor: w}
	}
	return now
}

func (r *rolloutRun) details() string {
	return rolloutDetails(r.machine.Status(), workflow.Now(r.ctx).UTC().Truncate(time.Second))
}

// starting: it is being claimed, and the party is not known to be away.
func (r *rolloutRun) starting(s rollout.Status) bool {
	return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitParty && r.wanted.Activity() && !r.wanted.NoPickUpTimeout
}

// rolloutMenu is what a Rollout takes.
var rolloutMenu = menuOf(commandOf, validateRolloutVerb,
	menuEntry{rollout.VerbApprove, `Let the step that waits go on. Payload: empty, or {"actor":"ann","reason":"looks good","step":2}.`},
	menuEntry{rollout.VerbPause, `Hold the rollout where it is. Payload: empty, or {"actor":"ann","reason":"lunch"}.`},
	menuEntry{rollout.VerbResume, `Go on after a pause. Payload: empty, or {"actor":"ann"}.`},
	menuEntry{rollout.VerbStop, `End it: back at stable (default), at the new version, or frozen as it is. ` +
		`Payload: empty, or {"to":"new","actor":"ann","reason":"enough seen"}.`},
	menuEntry{rollout.VerbRollback, `Go back to the stable version, traffic first. Payload: empty, or {"actor":"ann","reason":"errors"}.`},
	menuEntry{rollout.VerbJump, `Go to another step; back, traffic moves and pods stay. Payload: {"toStep":3,"actor":"ann"}.`},
	menuEntry{rollout.VerbRetry, `Try again what has failed, or put back what somebody else has edited. Payload: empty, or {"actor":"ann"}.`},
	menuEntry{rollout.VerbPromote, `Skip the pauses that are left. Payload: empty, or {"actor":"ann","step":2}.`},
)

func commandOf(verb rollout.Verb, q RolloutVerbRequest) rollout.Command {
	return rollout.Command{Verb: verb, Actor: q.Actor, Via: q.Via, Reason: q.Reason, Key: q.Key,
		Step: q.Step, Gate: q.Gate, To: q.To, ToStep: q.ToStep, Generation: q.Generation, State: q.ObjectState}
}

func validateRolloutVerb(_ rollout.Verb, q RolloutVerbRequest) error {
	switch {
	case q.Step < 0 || q.ToStep < 0 || q.Generation < 0 || q.ObjectState < 0:
		return errors.New("step, toStep, generation and objectState are counted from 1")
	case len(q.Gate) > maxGate:
		return fmt.Errorf("gate has %d characters: send waitingFor.gate as it is", len(q.Gate))
	case q.To != "":
		if err := validateStopTo(q.To); err != nil {
			return err
		}
	}
	return validateVerb(q.VerbRequest)
}

func validateStopTo(to rollout.StopTo) error {
	if !slices.Contains(rollout.StopTos, to) {
		return fmt.Errorf("to is %q: it is stable, new or frozen", cell(string(to), maxVerb))
	}
	return nil
}

// supersedeEntry is an Update alone: SupersedeRequest → VerbResponse.
var supersedeEntry = menuEntry{rollout.VerbSupersede,
	"A newer release of the same workload takes this one's place: this one goes back to stable first."}

// readSupersede reads a newer release, which comes with its command.
func readSupersede(payloads *commonpb.Payloads) (*envelope[rollout.Command], error) {
	var q SupersedeRequest
	if err := decodePayload(payloads, &q); err != nil { // another server made it, which may be newer
		return nil, err
	}
	if len(q.Input.Spec.Strategy.Steps) == 0 || q.Input.State != nil || q.Input.Newer != nil {
		return nil, errors.New("the newer release has no steps: send its whole input")
	}
	command := commandOf(rollout.VerbSupersede, RolloutVerbRequest{VerbRequest: q.VerbRequest})
	return &envelope[rollout.Command]{command: command, with: &q.Input}, validateVerb(q.VerbRequest)
}

// carryOut hands one command to the machine.
func (r *rolloutRun) carryOut(e *envelope[rollout.Command], now time.Time) (audit.Outcome, string) {
	if edited, is := e.with.(*strategy.Strategy); is {
		return r.machine.Replan(e.command, *edited, now)
	}
	outcome, text := r.machine.Command(e.command, now)
	if newer, is := e.with.(*RolloutInput); is && r.newer == nil && r.machine.Superseded() {
		r.newer = newer
	}
	return outcome, text
}

// start carries out an activity beside the loop.
func (r *rolloutRun) start(a machine.Action) {
	ctx, cancel := workflow.WithCancel(r.ctx)
	running := &runningAction{cancel: cancel}
	if r.version >= versionLegs && r.machine.Leg(a) {
		running.leg = new(r.machine.BeginLeg(&a))
	}
	r.machine.Start(a)
	r.running, running.action = running, a
	workflow.Go(ctx, func(ctx workflow.Context) {
		running.err = r.carryOutAction(ctx, running)
		running.ended = true
	})
}

func (r *rolloutRun) carryOutAction(ctx workflow.Context, running *runningAction) error {
	a, out := running.action, &running.result
	atParty, atCentre := workflow.WithActivityOptions(ctx, r.partyOptions(a)), workflow.WithActivityOptions(ctx, options(centreForever, a))
	if running.leg != nil {
		return perform(workflow.WithActivityOptions(ctx, r.legOptions(a)), machine.ActivityLeg, *running.leg, &running.gone)
	}
	switch a.Kind {
	case machine.ActBegin:
		return perform(atParty, rollout.ActivityBegin, a.Begin, &out.Begin)
	case machine.ActMove:
		return perform(atParty, rollout.ActivityMove, a.Move, &out.Pods)
	case machine.ActRoute:
		return perform(atParty, rollout.ActivityRoute, a.Route, &out.Route)
	case machine.ActFinish:
		return perform(atParty, rollout.ActivityFinish, a.Finish, &out.Pods)
	case machine.ActHold:
		return perform(atCentre, rollout.ActivityHoldTraffic, a.Hold, &out.Hold)
	case machine.ActLeave:
		return perform(atCentre, rollout.ActivityLeaveTraffic, a.Leave, &out.Leave)
	case machine.ActAskHolder:
		return perform(atCentre, workloadops.ActivityClaimHolder, a.Holder, &out.Holder)
	case machine.ActAskWindow:
		return perform(atCentre, window.ActivityNextOpening, a.Window, &out.Window)
	default:
		return r.complete(atCentre)
	}
}

// complete writes the record. A rollout closes without its record only when that is refused for good.
func (r *rolloutRun) complete(ctx workflow.Context) error {
	spec := r.in.Spec
	request := rollout.CompleteRequest{Record: r.in.Record, WorkflowID: r.info.WorkflowExecution.ID, RunID: r.info.WorkflowExecution.RunID,
		Party: spec.Workload().PartyOrDefault(), Namespace: spec.Namespace, Name: spec.Name}
	if r.version >= versionLegs && r.completeAtOnce(ctx, request) {
		return nil
	}
	err := perform(ctx, rollout.ActivityCompleteRollout, request, nil)
	if err != nil {
		workflow.GetLogger(ctx).Error("the record could not be written", "record", r.in.Record, "error", err)
	}
	return err
}

// completeAtOnce writes the record by a local activity, which costs one event. A home cluster that does not answer at once is waited for by an activity.
func (r *rolloutRun) completeAtOnce(ctx workflow.Context, request rollout.CompleteRequest) bool {
	request.Status = new(r.machine.Status()) // what a local activity is given is no part of the history
	return atOnce(ctx, rollout.ActivityCompleteRollout, request, nil)
}

// partyOptions are those of an operation on a party's cluster. A party that is known to be away is waited for without a limit.
func (r *rolloutRun) partyOptions(a machine.Action) workflow.ActivityOptions {
	pickUp := time.Duration(r.in.UnreachableBudgetSeconds) * time.Second
	if a.NoPickUpTimeout {
		pickUp = 0
	}
	return options(partyRun(r.in.Queue, pickUp), a)
}

// legOptions let an attempt keep its place for as long as its pods come on.
func (r *rolloutRun) legOptions(a machine.Action) workflow.ActivityOptions {
	o := r.partyOptions(a)
	o.StartToCloseTimeout = legTimeout
	return o
}

// legTimeout is more than an attempt at a leg takes.
const legTimeout = 5 * time.Minute

// options are those of an action. What is stopped ends before anything else begins: two writers of one workload would undo each other.
func options(o workflow.ActivityOptions, a machine.Action) workflow.ActivityOptions {
	o.Summary, o.WaitForCancellation = cell(a.Summary, maxSummary), true
	return o
}

// maxSummary is the longest summary that Temporal's UI shows, in bytes.
const maxSummary = 200

// rolloutFailure is an activity's error in the machine's terms.
func rolloutFailure(err error, party string) machine.Failure {
	details := detailsOf(err)
	f := machine.Failure{Kind: kindOf(err), Message: message(err), Holder: details.Holder, SpentSeconds: details.SpentSeconds}
	if trouble, spent := systemTrouble(err, party); trouble != "" {
		f.Message, f.SpentSeconds = trouble, spent
		if !f.Kind.System() {
			f.Kind = failure.Unreachable
		}
	}
	if temporal.IsCanceledError(err) { // somebody else than the machine stopped it: it is done again
		f.Kind = failure.Unreachable
	}
	var numbers rollout.MoveResult
	told := f.Kind == failure.WorkloadFailed || f.Kind == failure.Drift
	if told && len(details.Data) > 0 && json.Unmarshal(details.Data, &numbers) == nil {
		f.Move = &numbers
	}
	return f
}
