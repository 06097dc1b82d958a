package rollouts

import (
	"context"
	"errors"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/api/verbs"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/workflows"
)

// Objects lets the controller of Rollout objects start and command releases in the same way as the HTTP API.
type Objects struct{ *Handlers }

// NewObjects creates an Objects.
func NewObjects(b *backend.Backend) *Objects { return &Objects{New(b, nil)} }

func keyOf(o rollout.ObjectRef) rolloutKey {
	return rolloutKey{catalog.DefaultParty, o.Namespace, o.Name}
}

// Begin starts a release, or supersedes the live one if the request allows it. refused is the reason why it cannot be
// executed now; the caller may retry with the same key or another one.
func (o *Objects) Begin(ctx context.Context, r kruise.Release) (refused string, err error) {
	ctx, cancel := context.WithTimeout(ctx, start.Timeout)
	defer cancel()
	s := &rolloutStart{Handlers: o.Handlers, request: r.Request, object: &r.Object, confirm: r.Confirm}
	_, err = s.run(ctx, kruise.Via)
	if err == nil {
		return "", nil
	}
	var refusal *problem.Error
	if !errors.As(err, &refusal) {
		return "", err
	}
	switch refusal.Status {
	case problem.Conflict.Status:
		if described, err := o.Describe(ctx, keyOf(r.Object).workflowID()); err != nil || execution.IsOpen(described) &&
			!r.Request.Supersede {
			// the conflicting release is shown by its own status, or is about to close
			return "", errors.Join(err, refusal)
		}
		return refusal.Detail, nil
	case problem.Refused.Status, problem.Malformed.Status:
		return refusal.Detail, nil
	}
	return "", err
}

// Send sends a command to the live release of an object's name. edited is the new strategy of a replan, else nil.
func (o *Objects) Send(ctx context.Context, ref rollout.ObjectRef, c rollout.Command,
	edited *strategy.Strategy) (kruise.Answer, error) {
	request := workflows.RolloutVerbRequest{Step: c.Step, Gate: c.Gate, To: c.To, ToStep: c.ToStep,
		Generation: c.Generation, ObjectState: c.State,
		VerbRequest: workflows.VerbRequest{Actor: c.Actor, Reason: c.Reason, Key: c.Key, Via: kruise.Via}}
	payload := any(request)
	if edited != nil {
		payload = workflows.ReplanRequest{RolloutVerbRequest: request, Strategy: *edited}
	}
	answer, err := verbs.Send(ctx, o.Backend, keyOf(ref).workflowID(),
		verbs.Command{Verb: string(c.Verb), Key: c.Key, Payload: payload})
	if errors.Is(err, verbs.ErrClosed) {
		return kruise.Answer{Closed: true}, nil
	}
	return kruise.Answer{Outcome: answer.Outcome, Message: answer.Message}, err
}

// Open reports whether a release of an object's name runs.
func (o *Objects) Open(ctx context.Context, ref rollout.ObjectRef) (bool, error) {
	described, err := o.Describe(ctx, keyOf(ref).workflowID())
	return err == nil && execution.IsOpen(described), err
}
