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

// Objects is how Rollout objects start and steer releases: the ways of the HTTP API, without HTTP.
type Objects struct{ *Handlers }

// NewObjects makes them.
func NewObjects(b *backend.Backend) *Objects { return &Objects{New(b, nil)} }

func keyOf(o rollout.ObjectRef) rolloutKey {
	return rolloutKey{catalog.DefaultParty, o.Namespace, o.Name}
}

// Begin starts a release, or takes the place of the live one where the request says so. refused is why it cannot be carried out as things are;
// it may be asked again, with the same key or another.
func (o *Objects) Begin(ctx context.Context, r kruise.Release) (refused string, err error) {
	ctx, cancel := context.WithTimeout(ctx, start.Timeout)
	defer cancel()
	s := &rolloutStart{Handlers: o.Handlers, request: r.Request, object: &r.Object, confirm: r.Confirm}
	_, err = s.run(ctx, kruise.Via)
	if err == nil {
		return "", nil
	}
	var asked *problem.Error
	if !errors.As(err, &asked) {
		return "", err
	}
	switch asked.Status {
	case problem.Conflict.Status:
		if described, err := o.Describe(ctx, keyOf(r.Object).workflowID()); err != nil || execution.IsOpen(described) && !r.Request.Supersede {
			return "", errors.Join(err, asked) // the release that is in the way shows itself, or is about to close
		}
		return asked.Detail, nil
	case problem.Refused.Status, problem.Malformed.Status:
		return asked.Detail, nil
	}
	return "", err
}

// Send sends a command to the live release of an object's name. edited is the strategy of a replan.
func (o *Objects) Send(ctx context.Context, ref rollout.ObjectRef, c rollout.Command, edited *strategy.Strategy) (kruise.Answer, error) {
	request := workflows.RolloutVerbRequest{Step: c.Step, Gate: c.Gate, To: c.To, ToStep: c.ToStep, Generation: c.Generation, ObjectState: c.State,
		VerbRequest: workflows.VerbRequest{Actor: c.Actor, Reason: c.Reason, Key: c.Key, Via: kruise.Via}}
	payload := any(request)
	if edited != nil {
		payload = workflows.ReplanRequest{RolloutVerbRequest: request, Strategy: *edited}
	}
	answer, err := verbs.Deliver(ctx, o.Backend, keyOf(ref).workflowID(), verbs.Command{Verb: string(c.Verb), Key: c.Key, Payload: payload})
	if errors.Is(err, verbs.ErrClosed) {
		return kruise.Answer{Closed: true}, nil
	}
	return kruise.Answer{Outcome: answer.Outcome, Message: answer.Message}, err
}

// Open says whether a release of an object's name runs.
func (o *Objects) Open(ctx context.Context, ref rollout.ObjectRef) (bool, error) {
	described, err := o.Describe(ctx, keyOf(ref).workflowID())
	return err == nil && execution.IsOpen(described), err
}
