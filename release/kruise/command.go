package kruise

import (
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
)

// Command is a request that a client makes by changing an object's status.
type Command struct {
	Verb rollout.Verb
	// ToStep is the target of a jump.
	ToStep int
	// By is the user that changed the status, as authenticated by the API server; "" if no admission policy records it.
	By string
	// State is the sequence number of the status that the client edited, Gate the approval gate in it, Step the step
	// that it showed.
	State int64
	Gate  string
	Step  int
}

// Pending returns the command that a client left in the status; nil if the status is as the engine wrote it. A changed
// nextStepIndex is a jump. Any changed currentStepState asks for an approval; the release decides whether it can be
// approved.
func Pending(s v1beta1.RolloutStatus) *Command {
	engine := s.Slipway
	if engine == nil || engine.Seq == 0 {
		return nil
	}
	common := commonOf(s)
	c := &Command{By: engine.By, State: engine.Seq, Gate: engine.Gate, Step: int(common.CurrentStepIndex)}
	switch {
	case common.NextStepIndex != engine.NextStepIndex:
		c.Verb, c.ToStep = rollout.VerbJump, int(common.NextStepIndex)
	case common.CurrentStepState != engine.StepState:
		c.Verb = rollout.VerbApprove
	default:
		return nil
	}
	return c
}

// MayWrite reports whether the status of a release may replace the stored one: the stored status has no command that
// the release has not answered, or the release has ended, so that it can no longer take a command.
func MayWrite(v rollout.View, stored v1beta1.RolloutStatus) bool {
	pending := Pending(stored)
	return pending == nil || pending.State <= v.AnsweredState || v.Status.FinishedAt != nil
}
