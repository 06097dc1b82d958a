package kruise

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// Via is the channel, as recorded in the audit, of what a client requests through an object.
const Via = "kubectl"

// Release is a release that an object requests.
type Release struct {
	Request strategy.Request
	Object  rollout.ObjectRef
	// Confirm is why the release needs an approval before it starts; "": it needs none.
	Confirm string
}

// Unheld is a change of a pod template that moved pods without a release, for its record.
type Unheld struct {
	Spec   strategy.Spec
	Object rollout.ObjectRef
	Reason string
	// New is the version that the change set; Old is the digest of the pod template that served before, "" if unknown.
	New strategy.Revision
	Old string
	At  time.Time
}

// Answer is the result of a command. Closed is true if no release was running to take it.
type Answer struct {
	Outcome audit.Outcome
	Message string
	Closed  bool
}

// SpecOf decodes the object's rollout spec with its warnings, without changing the object. The error lists every
// problem.
func SpecOf(r *v1beta1.Rollout) (strategy.Spec, []string, error) {
	object := *r
	object.APIVersion, object.Kind = v1beta1.GroupVersion.String(), v1beta1.Kind
	object.Status = v1beta1.RolloutStatus{}
	raw, err := json.Marshal(object)
	if err != nil {
		return strategy.Spec{}, nil, err
	}
	spec, warnings, wrong := strategy.DecodeObject(raw)
	return spec, warnings, wrong.Err()
}

// RefOf returns the reference by which a release names the object that requested it.
func RefOf(r *v1beta1.Rollout) rollout.ObjectRef {
	return rollout.ObjectRef{Namespace: r.Namespace, Name: r.Name, UID: string(r.UID)}
}

// pending returns the command that a client left in the status; nil if the status is as the engine wrote it. The actor
// is the user as authenticated by the API server, if that records it; otherwise what the client wrote.
func pending(s v1beta1.RolloutStatus) *rollout.Command {
	if all := allPending(s); len(all) > 0 {
		return &all[0]
	}
	return nil
}

// allPending returns the commands that clients left in the status. A changed nextStepIndex is a jump. Any changed
// currentStepState asks for an approval; the release decides whether it can be approved.
func allPending(s v1beta1.RolloutStatus) (all []rollout.Command) {
	engine := s.Slipway
	if engine == nil || engine.Seq == 0 {
		return nil
	}
	common := commonOf(s)
	c := rollout.Command{Actor: engine.By, State: engine.Seq, Gate: engine.Gate}
	if common.NextStepIndex != engine.NextStepIndex {
		jump := c
		jump.Verb, jump.ToStep = rollout.VerbJump, int(common.NextStepIndex)
		all = append(all, jump)
	}
	if common.CurrentStepState != engine.StepState {
		c.Verb = rollout.VerbApprove
		all = append(all, c)
	}
	return all
}

// keepUnanswered keeps in a release's status the commands that a client wrote into the stored one after another command
// of the same state, which the release has answered: they are that client's, with the gate that it saw, and the release
// answers them next. Without that, restoring the answered command would take them away without a record.
func keepUnanswered(status *v1beta1.RolloutStatus, stored v1beta1.RolloutStatus, v rollout.View) {
	if len(v.AnsweredCommands) == 0 || v.Status.FinishedAt != nil {
		return
	}
	p := partOf(status)
	for _, c := range allPending(stored) {
		if c.State != v.AnsweredState || slices.Contains(v.AnsweredCommands,
			rollout.AnsweredCommand{Verb: c.Verb, ToStep: c.ToStep}) {
			continue
		}
		if c.Verb == rollout.VerbJump {
			p.NextStepIndex = int32(c.ToStep)
		} else {
			p.CurrentStepState = commonOf(stored).CurrentStepState
		}
		status.Slipway.Gate, status.Slipway.By = c.Gate, c.Actor
	}
}

// MayWrite reports whether the status of a release may replace the stored one: the stored status is of a state whose
// command the release has answered, or has no command, or the release has ended, so that it can no longer take one.
func MayWrite(v rollout.View, stored v1beta1.RolloutStatus) bool {
	command := pending(stored)
	return command == nil || command.State <= v.AnsweredState || v.Status.FinishedAt != nil
}

// KeyEngine names the engine that manages Rollouts. As a label of a namespace its value is the engine's name, for all
// Rollouts there that no engine manages yet; as an annotation of a Rollout it is "<name>/<UID>" of the engine that
// manages it.
const KeyEngine = "slipway.io/engine"

// EngineText returns the annotation's value.
func EngineText(e workload.Engine) string { return e.Name + "/" + e.UID }

// Manages reports whether an engine manages an object, and whether the object names an engine at all. To hand an object
// to another engine, remove the annotation.
func Manages(e workload.Engine, r *v1beta1.Rollout) (ours, named bool) {
	_, uid, _ := strings.Cut(r.Annotations[KeyEngine], "/")
	return uid == e.UID, uid != ""
}
