package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
)

// rolloutCommand is something that was sent to a rollout.
type rolloutCommand struct {
	command rollout.Command
	// malformed says why the payload could not be read; "" when it could. unknown: there is no such signal.
	malformed string
	unknown   bool
	// observed is set instead of a verb when the party's watch noticed a change.
	observed bool
	// newer is the release that takes this one's place, for supersede.
	newer   *RolloutInput
	outcome audit.Outcome
	text    string
	// response is set once the command was carried out and what follows from it is known.
	response *VerbResponse
}

// UpdateSupersede is the Update with which a newer release takes a running one's place: SupersedeRequest → VerbResponse.
const UpdateSupersede = string(rollout.VerbSupersede)

// rolloutMenu is what a Rollout takes.
var rolloutMenu = verbMenu[rollout.Verb, RolloutVerbRequest]{entries: []menuEntry[rollout.Verb]{
	{rollout.VerbApprove, `Let the step that waits go on. Payload: empty, or {"actor":"ann","reason":"looks good","step":2}.`},
	{rollout.VerbPause, `Hold the rollout where it is. Payload: empty, or {"actor":"ann","reason":"lunch"}.`},
	{rollout.VerbResume, `Go on after a pause. Payload: empty, or {"actor":"ann"}.`},
	{rollout.VerbStop, `End it: back at stable (default), at the new version, or frozen as it is. Payload: empty, or {"to":"new","actor":"ann","reason":"enough seen"}.`},
	{rollout.VerbRollback, `Go back to the stable version, traffic first. Payload: empty, or {"actor":"ann","reason":"errors"}.`},
	{rollout.VerbJump, `Go to another step; back, traffic moves and pods stay. Payload: {"toStep":3,"actor":"ann"}.`},
	{rollout.VerbRetry, `Try again what has failed, or put back what somebody else has edited. Payload: empty, or {"actor":"ann"}.`},
	{rollout.VerbPromote, `Skip the pauses that are left. Payload: empty, or {"actor":"ann","step":2}.`},
}, validate: validateRolloutVerb}

// offerVerbs has people's verbs and the newer release that supersedes this one end in the inbox.
func (r *rolloutRun) offerVerbs() error {
	err := offer(r.ctx, rolloutMenu, func(ctx workflow.Context, verb rollout.Verb, request RolloutVerbRequest) (VerbResponse, error) {
		return r.ask(ctx, &rolloutCommand{command: commandOf(verb, request)})
	})
	if err != nil {
		return err
	}
	description := "A newer release of the same workload takes this one's place: this one goes back to stable first."
	return workflow.SetUpdateHandlerWithOptions(r.ctx, UpdateSupersede, func(ctx workflow.Context, request SupersedeRequest) (VerbResponse, error) {
		return r.ask(ctx, &rolloutCommand{command: commandOf(rollout.VerbSupersede, RolloutVerbRequest{VerbRequest: request.VerbRequest}), newer: &request.Input})
	}, workflow.UpdateHandlerOptions{Description: description, Validator: func(_ workflow.Context, request SupersedeRequest) error {
		if len(request.Input.Spec.Strategy.Steps) == 0 || request.Input.State != nil || request.Input.Newer != nil {
			return temporal.NewNonRetryableApplicationError("the newer release has no steps: send its whole input", "Malformed", nil)
		}
		return validateVerb(request.VerbRequest)
	}})
}

// ask puts a command into the inbox and waits until the loop has carried it out.
func (r *rolloutRun) ask(ctx workflow.Context, c *rolloutCommand) (VerbResponse, error) {
	r.push(c)
	if err := workflow.Await(ctx, func() bool { return c.response != nil }); err != nil {
		return VerbResponse{}, err
	}
	return *c.response, nil
}

func commandOf(verb rollout.Verb, q RolloutVerbRequest) rollout.Command {
	return rollout.Command{Verb: verb, Actor: q.Actor, Via: q.Via, Reason: q.Reason, Key: q.Key, Step: q.Step, Gate: q.Gate, To: q.To, ToStep: q.ToStep}
}

// maxGate is the longest gate that is looked at, in characters.
const maxGate = 100

// validateRolloutVerb rejects what is malformed; what the state does not allow is accepted and answered with a refusal.
func validateRolloutVerb(_ workflow.Context, _ rollout.Verb, q RolloutVerbRequest) error {
	if err := validateVerb(q.VerbRequest); err != nil {
		return err
	}
	malformed := func(format string, args ...any) error {
		return temporal.NewNonRetryableApplicationError(fmt.Sprintf(format, args...), "Malformed", nil)
	}
	switch {
	case q.Step < 0 || q.ToStep < 0:
		return malformed("step and toStep are counted from 1")
	case len(q.Gate) > maxGate:
		return malformed("gate has %d characters: send waitingFor.gate as it is", len(q.Gate))
	case q.To != "" && q.To != rollout.StopToStable && q.To != rollout.StopToNew && q.To != rollout.StopToFrozen:
		return malformed("to is %q: it is stable, new or frozen", cell(string(q.To), maxVerb))
	}
	return nil
}

// rolloutSignal reads a signal as its event comes in.
func rolloutSignal(ctx workflow.Context, in *interceptor.HandleSignalInput) *rolloutCommand {
	if in.SignalName == rollout.SignalObserved {
		return &rolloutCommand{observed: true} // what was noticed is a hint only: the workload itself is looked at
	}
	s := rolloutMenu.read(ctx, in)
	return &rolloutCommand{command: commandOf(s.verb, s.request), malformed: s.malformed, unknown: s.unknown}
}

// carryOut hands one command to the machine. The answer waits until it is known what follows.
func (r *rolloutRun) carryOut(c *rolloutCommand, now time.Time) {
	switch {
	case c.observed:
		r.machine.Observed()
		return
	case c.unknown:
		r.machine.Refuse(c.command, fmt.Sprintf("there is no signal %q: send one of %v", c.command.Verb, rollout.Verbs), now)
		return
	case c.malformed != "":
		r.machine.Refuse(c.command, "the payload cannot be read: "+c.malformed+`; send it empty, or as {"actor":"…","reason":"…"}`, now)
		return
	}
	outcome, text := r.machine.Command(c.command, now)
	if c.newer != nil && r.newer == nil && r.machine.Superseded() {
		r.newer = c.newer
	}
	c.outcome, c.text = outcome, text
	r.answers = append(r.answers, c)
}

// answerAll answers the commands that were carried out with the state that follows from them.
func (r *rolloutRun) answerAll() {
	for _, c := range r.answers {
		c.response = responseOf(c.outcome, c.text, string(r.machine.Status().Phase), r.machine.Audit())
	}
	r.answers = nil
}
