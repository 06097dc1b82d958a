package kruise

import (
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
)

// Command is what a client asks by having changed an object's status.
type Command struct {
	Verb rollout.Verb
	// ToStep is where a jump goes.
	ToStep int
	// By is who changed the status, as the API server has authenticated them; "" where nothing notes that.
	By string
	// State is the state of the object to which it is the answer, Gate that of the step; Step the step that was shown.
	State int64
	Gate  string
	Step  int
}

// Pending is the command that a client has left in the status; nil when the status is as the engine wrote it. A step that is named anew is a
// jump; a state that is set otherwise asks for an approval, whatever state that is: the release says whether it can be.
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

// MayWrite says whether a status that is stored may be replaced by that of a release: it carries no command that the release has not heard, or the
// release is over, so that nobody can hear it any more.
func MayWrite(v rollout.View, stored v1beta1.RolloutStatus) bool {
	pending := Pending(stored)
	return pending == nil || pending.State <= v.Answered || v.Status.FinishedAt != nil
}
