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
	"slipway.io/slipway/release/origin"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/window"
	"slipway.io/slipway/release/workload"
)

// RolloutResult is the outcome of a rollout; its record holds the whole status.
type RolloutResult struct {
	Phase  rollout.Phase `json:"phase"`
	Reason string        `json:"reason"`
	// Record is the record of the release that ended. A newer release may have superseded the one that was started.
	Record string `json:"record,omitempty"`
	// Change is what it changed: by Before and After a task can revert it.
	revision.Change
}

// RolloutState is the answer of a Rollout to the query `state`.
type RolloutState struct {
	rollout.Status
	// AsOf is the number of events of the workflow's history that the status is of: a description of the workflow with
	// fewer events is older.
	AsOf int64 `json:"asOf,omitempty"`
}

// Rollout is one release of a workload (canary, partition or blue-green). It executes one activity or one wait at a
// time. Temporal's Cancel means stop to stable.
func Rollout(ctx workflow.Context, in RolloutInput) (RolloutResult, error) {
	r := newRolloutRun(ctx, in)
	state := func() (RolloutState, error) {
		return RolloutState{Status: r.machine.Status(), AsOf: int64(r.info.GetCurrentHistoryLength())}, nil
	}
	offered := r.registerHandlers(state, "The whole rollout: its phase, why, and each step.")
	if err := errors.Join(offered, r.handleUpdate(supersedeEntry, readSupersede), r.handleUpdate(detachEntry,
		readDetach), r.handleUpdate(replanEntry, readReplan)); err != nil {
		return RolloutResult{}, err
	}
	r.checkOrigin(origin.Request{Kind: v1alpha1.KindRollout, Record: in.Record, InputDigest: in.Digest(), Task: in.Task,
		ParentType: TypeServiceRelease}, in.State != nil, func(workflow.Context) func() {
		return func() { r.admitted = true }
	})
	switch again, err := r.run(); {
	case err != nil:
		return RolloutResult{}, err
	case r.foreign:
		return RolloutResult{}, errOrigin(r.dismissed)
	case again:
		return RolloutResult{}, workflow.NewContinueAsNewError(r.ctx, TypeRollout, r.nextInput())
	case r.newer != nil:
		return RolloutResult{}, workflow.NewContinueAsNewError(r.ctx, TypeRollout, *r.newer)
	}
	s := r.machine.Status()
	result := RolloutResult{Phase: s.Phase, Reason: s.Reason, Record: s.Record, Change: revision.Change{
		FromRevision: s.StableRevision, ToRevision: s.CanaryRevision, FromPackage: s.StablePackage,
		ToPackage: s.Package,
		Before:    &revision.Revision{Template: s.StableTemplateDigest, Name: s.StableRevision, Images: s.StableImages},
		After:     &revision.Revision{Template: s.TemplateDigest, Name: s.CanaryRevision, Images: s.Images}}}
	if s.Phase == rollout.PhaseFailed {
		return result, temporal.NewNonRetryableApplicationError(s.Reason, TypeRolloutFailed, nil)
	}
	return result, nil
}

// rolloutRun is a running rollout. Only the workflow's coroutines access it.
type rolloutRun struct {
	*loop[rollout.Command]
	in      RolloutInput
	machine *machine.Machine
	// admitted is true once it is known that the engine has started the release.
	admitted bool
	// wanted is the machine's last requested action; running executes it.
	wanted  machine.Action
	running *runningAction
	object  *objectPublisher
	// countedRestorations is how many restorations countRestorations has counted.
	countedRestorations int
	// newer is the release that continues in this workflow after this one has ended (supersede).
	newer *RolloutInput
}

// runningAction is an activity in progress.
type runningAction struct {
	action  machine.Action
	cancel  workflow.CancelFunc
	stopped bool
	// leg is the result if action begins a leg, otherwise result is.
	leg    machine.LegResult
	result machine.Result
	err    error
	ended  bool
}

func newRolloutRun(ctx workflow.Context, in RolloutInput) *rolloutRun {
	r := &rolloutRun{in: in, newer: in.Newer, loop: newLoop(ctx, rolloutMenu, rollout.Command{Verb: rollout.VerbStop,
		Via: "temporal", Reason: reasonCancelled})}
	self := r.info.WorkflowExecution
	claim := workload.Holder{WorkflowID: self.ID, RunID: r.info.FirstRunID, Engine: in.Engine}
	setup := machine.Setup{Request: in.Request, Claim: claim.String(),
		Workflow: audit.WorkflowRef{ID: self.ID, RunID: self.RunID}}
	if in.State == nil {
		r.machine = machine.NewMachine(setup, workflow.Now(ctx))
	} else {
		r.machine = machine.ResumeMachine(setup, *in.State)
	}
	r.driver, r.loop.machine = r, r.machine
	r.countedRestorations = r.machine.Restorations()
	r.object = newObjectPublisher(r.ctx, r.machine)
	begins := in.State == nil && r.info.ContinuedExecutionRunID == ""
	switch {
	case in.State != nil:
		r.resumeListing()
	case begins: // the workflow was started with this state
		r.shown = listing{state: string(rollout.PhaseProgressing)}
	}
	return r
}

func (r *rolloutRun) hasResult() bool {
	return r.running != nil && r.running.ended || r.object.mustWake()
}

// takeResults passes the result of the ended activity to the machine.
func (r *rolloutRun) takeResults(now time.Time, _ bool) {
	r.object.takeResult(now)
	a := r.running
	if a == nil || !a.ended {
		return
	}
	r.running = nil
	switch {
	case a.action.OnParty():
		r.machine.EndLeg(r.legEnd(a), now)
	case a.err == nil:
		r.machine.Done(a.result, now)
	case a.stopped && endsAttempt(a.err):
		r.machine.Stopped()
	default:
		r.machine.Failed(r.failure(a.err), now)
	}
}

// failure converts the error of an activity of the party, or of the centre.
func (r *rolloutRun) failure(err error) machine.Failure {
	return rolloutFailure(err, "party "+r.in.Spec.Workload().PartyOrDefault())
}

// handleSignal takes an observation of the party's watch. It is only a hint: the machine then reads the workload
// itself.
func (r *rolloutRun) handleSignal(s *signal, now time.Time) bool {
	if s.SignalName != rollout.SignalObserved {
		return false
	}
	r.machine.Observed(readObserved(s), now)
	return true
}

// readObserved returns the observation in a signal; an unreadable one is still a hint to read the workload.
func readObserved(s *signal) (o rollout.Observed) {
	if err := decodePayload(s.Arg, &o); err != nil {
		return rollout.Observed{}
	}
	return o
}

// act executes the machine's next action and updates the Rollout object.
func (r *rolloutRun) act() {
	if !r.admitted {
		return
	}
	r.actOnWorkload()
	r.object.publish()
	r.countRestorations()
}

// countRestorations counts the restorations since its last call.
func (r *rolloutRun) countRestorations() {
	total := r.machine.Restorations()
	r.meter.restored(total - r.countedRestorations)
	r.countedRestorations = total
}

func (r *rolloutRun) actOnWorkload() {
	if r.running != nil {
		return
	}
	r.wanted = r.machine.Next(workflow.Now(r.ctx))
	if r.wanted.Activity() {
		r.start(r.wanted)
	}
}

func (r *rolloutRun) idle() bool {
	return r.running == nil && r.wanted.Kind == machine.ActWait && r.object.idle()
}

func (r *rolloutRun) done() bool {
	return r.dismissed != "" || r.admitted && r.machine.Finished() && r.object.idle()
}

func (r *rolloutRun) nextWake() (until time.Time, summary string) {
	// regardless of whether the Rollout object is up to date
	if r.running == nil && r.wanted.Kind == machine.ActWait && r.wanted.Until != nil {
		until = *r.wanted.Until
	}
	return until, r.wanted.Summary
}

func (r *rolloutRun) nextInput() any {
	in, state := r.in, r.machine.State()
	in.State, in.Newer = &state, r.newer
	return in
}

// listed omits the short waits for pods and traffic: each update is a history event.
func (r *rolloutRun) listed() listing {
	s := r.machine.Status()
	now := listing{state: string(s.Phase), skipPublish: r.foreign}
	w := s.WaitingFor
	short := w == nil || w.Kind == rollout.WaitTraffic || w.Kind == rollout.WaitPods && !r.machine.PodStuck() ||
		r.starting(s) || w.Kind == rollout.WaitWindow && r.running != nil
	if !short {
		now.waitingFor, now.since, now.memo = string(w.Kind), w.Since,
			&Shown{State: now.state, Reason: s.Reason, WaitingFor: w, Position: s.Position()}
	}
	return now
}

func (r *rolloutRun) details() string {
	return rolloutDetails(r.machine.Status(), workflow.Now(r.ctx).UTC().Truncate(time.Second))
}

// starting reports whether the workload is being claimed and the party is not known to be unreachable.
func (r *rolloutRun) starting(s rollout.Status) bool {
	return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitParty && r.wanted.Activity() &&
		!r.wanted.NoPickUpTimeout
}

// rolloutMenu lists the verbs of a Rollout.
var rolloutMenu = newMenu(commandOf, validateRolloutVerb,
	menuEntry{rollout.VerbApprove,
		`Let the step that waits go on. Payload: empty, or {"actor":"ann","reason":"looks good","step":2}.`},
	menuEntry{rollout.VerbPause,
		`Hold the rollout at its current step. Payload: empty, or {"actor":"ann","reason":"lunch"}.`},
	menuEntry{rollout.VerbResume, `Go on after a pause. Payload: empty, or {"actor":"ann"}.`},
	menuEntry{rollout.VerbStop, `End it: at stable (default), at the new version, or frozen with the current split. ` +
		`Payload: empty, or {"to":"new","actor":"ann","reason":"enough seen"}.`},
	menuEntry{rollout.VerbRollback,
		`Go back to the stable version, traffic first. Payload: empty, or {"actor":"ann","reason":"errors"}.`},
	menuEntry{rollout.VerbJump,
		`Go to another step; back, traffic moves and pods stay. Payload: {"toStep":3,"actor":"ann"}.`},
	menuEntry{rollout.VerbRetry,
		`Retry the failed step, or overwrite the change of another client. Payload: empty, or {"actor":"ann"}.`},
	menuEntry{rollout.VerbPromote, `Skip the pauses that are left. Payload: empty, or {"actor":"ann","step":2}.`},
)

func commandOf(verb rollout.Verb, q RolloutVerbRequest) rollout.Command {
	return rollout.Command{Verb: verb, Actor: q.Actor, Via: q.Via, Reason: q.Reason, Key: q.Key,
		Step: q.Step, Gate: q.Gate, To: q.To, ToStep: q.ToStep, Generation: q.Generation, State: q.ObjectState,
		Refuse: q.Refuse}
}

func validateRolloutVerb(_ rollout.Verb, q RolloutVerbRequest) error {
	switch {
	case q.Step < 0 || q.ToStep < 0 || q.Generation < 0 || q.ObjectState < 0:
		return errors.New("step, toStep, generation and objectState are counted from 1")
	case len(q.Gate) > maxGate:
		return fmt.Errorf("gate has %d characters: send waitingFor.gate unchanged", len(q.Gate))
	case len(q.Refuse) > MaxReason:
		return fmt.Errorf("refuse has %d characters: at most %d are kept", len(q.Refuse), MaxReason)
	case q.To != "":
		if err := validateStopTo(q.To); err != nil {
			return err
		}
	}
	return validateVerb(q.VerbRequest)
}

func validateStopTo(to rollout.StopTo) error {
	if !slices.Contains(rollout.StopTos, to) {
		return fmt.Errorf("to is %q: it is stable, new or frozen", phrase.Line(string(to), maxVerb))
	}
	return nil
}

// supersedeEntry exists as an Update only: SupersedeRequest → VerbResponse.
var supersedeEntry = menuEntry{rollout.VerbSupersede,
	"A newer release of the same workload replaces this one, which returns to stable first."}

// readSupersede reads a supersede request; the newer release is attached to its command.
func readSupersede(payloads *commonpb.Payloads) (*envelope[rollout.Command], error) {
	var q SupersedeRequest
	if err := decodePayload(payloads, &q); err != nil { // lenient: the sending server may be newer
		return nil, err
	}
	if len(q.Input.Spec.Strategy.Steps) == 0 || q.Input.State != nil || q.Input.Newer != nil {
		return nil, errors.New("the newer release has no steps: send its whole input")
	}
	command := commandOf(rollout.VerbSupersede, RolloutVerbRequest{VerbRequest: q.VerbRequest})
	return &envelope[rollout.Command]{command: command, attachment: &q.Input}, validateVerb(q.VerbRequest)
}

// carryOut passes one command to the machine.
func (r *rolloutRun) carryOut(e *envelope[rollout.Command], now time.Time) (audit.Outcome, string) {
	outcome, text := carryOutOn(r.machine, e, now)
	if newer, is := e.attachment.(*RolloutInput); is && r.newer == nil && r.machine.Superseded() {
		r.newer = newer
	}
	return outcome, text
}

func carryOutOn(m *machine.Machine, e *envelope[rollout.Command], now time.Time) (audit.Outcome, string) {
	if edited, is := e.attachment.(*strategy.Strategy); is {
		return m.Replan(e.command, *edited, now)
	}
	return m.Command(e.command, now)
}

// atCentre executes an action of the centre.
func (r *rolloutRun) atCentre(ctx workflow.Context, running *runningAction) error {
	a, out := running.action, &running.result
	ctx = workflow.WithActivityOptions(ctx, options(centreForever, a))
	switch a.Kind {
	case machine.ActJoinTraffic:
		return perform(ctx, rollout.ActivityHoldTraffic, a.Hold, &out.Hold)
	case machine.ActLeaveTraffic:
		return perform(ctx, rollout.ActivityLeaveTraffic, a.Leave, &out.Leave)
	case machine.ActAskHolder:
		return perform(ctx, workload.ActivityClaimHolder, a.Holder, &out.Holder)
	case machine.ActAskWindow:
		return perform(ctx, window.ActivityNextOpening, a.Window, &out.Window)
	default:
		return r.complete(ctx)
	}
}

// complete writes the record. A rollout closes without its record only if the write is refused permanently.
func (r *rolloutRun) complete(ctx workflow.Context) error {
	spec := r.in.Spec
	request := rollout.CompleteRequest{Record: r.in.Record, WorkflowID: r.info.WorkflowExecution.ID,
		RunID: r.info.WorkflowExecution.RunID,
		Party: spec.Workload().PartyOrDefault(), Namespace: spec.Namespace, Name: spec.Name}
	if r.completeLocally(ctx, request) {
		return nil
	}
	err := perform(ctx, rollout.ActivityCompleteRollout, request, nil)
	if err != nil {
		workflow.GetLogger(ctx).Error("the record could not be written", "record", r.in.Record, "error", err)
	}
	return err
}

// completeLocally writes the record by a local activity, which costs one event. If the home cluster does not answer,
// the caller falls back to an activity.
func (r *rolloutRun) completeLocally(ctx workflow.Context, request rollout.CompleteRequest) bool {
	request.Status = new(r.machine.Status()) // the input of a local activity is not part of the history
	return tryLocally(ctx, rollout.ActivityCompleteRollout, request, nil)
}

// options adds an action's summary. A stopped activity must end before the next begins, unless it only asks: two
// writers of one workload would overwrite each other.
func options(o workflow.ActivityOptions, a machine.Action) workflow.ActivityOptions {
	o.Summary, o.WaitForCancellation = phrase.Inert(a.Summary, maxSummary), !a.Asks()
	return o
}

// maxSummary is the longest summary that Temporal's UI shows, in bytes.
const maxSummary = 200

// rolloutFailure converts an activity's error into the machine's type.
func rolloutFailure(err error, party string) machine.Failure {
	details := detailsOf(err)
	f := machine.Failure{Kind: kindOf(err), Message: message(err), Holder: details.Holder,
		SpentSeconds: details.SpentSeconds}
	if trouble, spent := systemTrouble(err, party); trouble != "" {
		f.Message, f.SpentSeconds = trouble, spent
		if !f.Kind.System() {
			f.Kind = failure.Unreachable
		}
	}
	if temporal.IsCanceledError(err) { // cancelled by another client rather than the machine: retry
		f.Kind = failure.Unreachable
	}
	var numbers rollout.MoveResult
	hasNumbers := f.Kind == failure.WorkloadFailed || f.Kind == failure.Drift
	if hasNumbers && len(details.Data) > 0 && json.Unmarshal(details.Data, &numbers) == nil {
		f.Move = &numbers
	}
	return f
}
