package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/serving"
)

// ServingVerbRequest is the payload of every verb of an operation on a serving, as Update and as Signal. All fields are optional.
type ServingVerbRequest struct {
	VerbRequest
	// Party is who is approved, "" whoever waits now; Gate is waitingFor.gate as the person saw it, "" is not checked. Both are for approve.
	Party string `json:"party,omitempty"`
	Gate  string `json:"gate,omitempty"`
}

// servingCommand is something that a person has sent to an operation on a serving.
type servingCommand struct {
	command serving.Command
	// malformed says why the payload could not be read; "" when it could. unknown: there is no such signal.
	malformed string
	unknown   bool
	outcome   audit.Outcome
	text      string
	// response is set once the command was carried out and the status has been told.
	response *VerbResponse
}

// servingMenu is what a Serving takes.
var servingMenu = verbMenu[serving.Verb, ServingVerbRequest]{entries: []menuEntry[serving.Verb]{
	{serving.VerbApprove, `Have the party begin that waits for an approval. Payload: empty, or {"actor":"ann","reason":"looks good","party":"bob"}.`},
	{serving.VerbPause, `Hold the operation: what has begun goes on, no other party begins. Payload: empty, or {"actor":"ann","reason":"lunch"}.`},
	{serving.VerbResume, `Go on after a pause. Payload: empty, or {"actor":"ann"}.`},
	{serving.VerbStop, `End an update: every party goes back to the version of before. Payload: empty, or {"actor":"ann","reason":"bad numbers"}.`},
}, validate: validateServingVerb}

// offerVerbs has people's verbs end in the inbox.
func (s *servingRun) offerVerbs() error {
	return offer(s.ctx, servingMenu, func(ctx workflow.Context, verb serving.Verb, request ServingVerbRequest) (VerbResponse, error) {
		c := &servingCommand{command: servingCommandOf(verb, request)}
		s.box.serving = append(s.box.serving, c)
		if err := workflow.Await(ctx, func() bool { return c.response != nil }); err != nil {
			return VerbResponse{}, err
		}
		return *c.response, nil
	})
}

func servingCommandOf(verb serving.Verb, q ServingVerbRequest) serving.Command {
	return serving.Command{Verb: verb, Actor: q.Actor, Via: q.Via, Reason: q.Reason, Key: q.Key, Party: q.Party, Gate: q.Gate}
}

// MaxParty is the longest name of a party, its role included, that is looked at, in characters.
const MaxParty = 200

// validateServingVerb rejects what is malformed; what the state does not allow is accepted and answered with a refusal.
func validateServingVerb(_ workflow.Context, verb serving.Verb, q ServingVerbRequest) error {
	malformed := func(format string, args ...any) error {
		return temporal.NewNonRetryableApplicationError(fmt.Sprintf(format, args...), "Malformed", nil)
	}
	switch {
	case verb != serving.VerbApprove && (q.Party != "" || q.Gate != ""):
		return malformed("party and gate are for approve only: %s is about all parties", verb)
	case len(q.Gate) > maxGate:
		return malformed("gate has %d characters: send waitingFor.gate as it is", len(q.Gate))
	case len(q.Party) > MaxParty:
		return malformed("party has %d characters: send waitingFor.party as it is", len(q.Party))
	}
	return validateVerb(q.VerbRequest)
}

// servingSignal reads a person's signal as its event comes in; nil is a signal that goes by a channel.
func servingSignal(ctx workflow.Context, in *interceptor.HandleSignalInput) *servingCommand {
	switch in.SignalName {
	case serving.SignalSupersede, serving.SignalGaveWay, serving.SignalPresence:
		return nil
	}
	s := servingMenu.read(ctx, in)
	return &servingCommand{command: servingCommandOf(s.verb, s.request), malformed: s.malformed, unknown: s.unknown}
}

// command hands everything that people have sent to the machine, oldest first. The answers wait until the status has been told.
func (s *servingRun) command(now time.Time) {
	for len(s.box.serving) > 0 {
		c := s.box.serving[0]
		s.box.serving = s.box.serving[1:]
		switch {
		case c.unknown:
			s.machine.Refuse(c.command, fmt.Sprintf("there is no signal %q: send one of %v", c.command.Verb, serving.Verbs), now)
			continue
		case c.malformed != "":
			s.machine.Refuse(c.command, "the payload cannot be read: "+c.malformed+`; send it empty, or as {"actor":"…","reason":"…"}`, now)
			continue
		}
		c.outcome, c.text = s.machine.Command(c.command, now)
		s.answers = append(s.answers, c)
	}
}

// answer answers the commands that were carried out with the state that follows from them.
func (s *servingRun) answer() {
	stage, log := serving.StageOver, &audit.Log{}
	if s.machine != nil {
		stage, log = s.machine.Stage(), s.machine.Audit()
	}
	for _, c := range s.answers {
		c.response = responseOf(c.outcome, c.text, string(stage), log)
	}
	s.answers = nil
}

// dismiss answers whoever has sent something to an operation that has nothing to do.
func (s *servingRun) dismiss() error {
	for answered := func() bool { return workflow.AllHandlersFinished(s.ctx) }; len(s.box.serving) > 0 || !answered(); {
		for _, c := range s.box.serving {
			c.outcome, c.text = audit.Refused, "the operation has nothing to do: "+s.result.Message
			s.answers = append(s.answers, c)
		}
		s.box.serving = nil
		s.answer()
		if err := workflow.Await(s.ctx, answered); err != nil {
			return err
		}
	}
	return nil
}
