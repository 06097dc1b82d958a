package rollouts

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/api/verbs"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/store"
	"slipway.io/slipway/workflows"
)

// ApproveRollout answers POST /api/v1/rollouts/{namespace}/{name}/approve, and all other verbs: it sends the verb and
// responds with the rollout as it is afterwards.
func (h *Handlers) ApproveRollout(c echo.Context, namespace, name string, params schema.ApproveRolloutParams) error {
	verb := rollout.Verb(path.Base(c.Path()))
	request, err := readVerb(c, verb, params.SlipwayVia)
	if err != nil {
		return err
	}
	key, err := newRolloutKey(params.Party, namespace, name)
	if err != nil {
		return err
	}
	return verbs.Execute(c, h.Backend, &rolloutVerb{Handlers: h, key: key, verb: verb, request: request},
		verbs.Command{Verb: string(verb), Key: request.Key, Payload: request})
}

// readVerb reads the body of a verb. Fields of other verbs are refused, not ignored.
func readVerb(c echo.Context, verb rollout.Verb, via *schema.Via) (workflows.RolloutVerbRequest, error) {
	var request workflows.RolloutVerbRequest
	err := verbs.Read(c, via, &request.VerbRequest, input.Field{Name: "step", Number: &request.Step},
		input.Field{Name: "gate", MaxLength: input.MaxGate, Into: &request.Gate}, input.Field{Name: "to",
			MaxLength: input.MaxGate, Into: (*string)(&request.To), Refused: input.Unless(verb == rollout.VerbStop,
				"is for stop only: leave it out")}, input.Field{Name: "toStep", Number: &request.ToStep,
			Refused: input.Unless(verb == rollout.VerbJump, "is for jump only: leave it out")})
	if err != nil {
		return request, err
	}
	approves := verb == rollout.VerbApprove || verb == rollout.VerbPromote
	switch {
	case approves && request.Gate == "" && request.Step == 0:
		return request, problem.BadField("gate", fmt.Sprintf(
			"is missing: to %s, send waitingFor.gate of the rollout, or its step; "+
				"without either, the request could reach another step than the reviewed one", verb))
	case verb == rollout.VerbJump && request.ToStep == 0:
		return request, problem.BadField("toStep", "is missing: send the step to jump to, counted from 1")
	case request.To != "" && !slices.Contains(rollout.StopTos, request.To):
		return request, problem.BadField("to", fmt.Sprintf("%q is none of %s", request.To,
			strictyaml.List(rollout.StopTos)))
	}
	return request, nil
}

// rolloutVerb is the target of a rollout's verb.
type rolloutVerb struct {
	*Handlers
	key     rolloutKey
	verb    rollout.Verb
	request workflows.RolloutVerbRequest
	// seen is the rollout as last read.
	seen rolloutSnapshot
}

// Workflow returns the workflow of the rollout's name, which may be closed.
func (r *rolloutVerb) Workflow(context.Context) (string, error) { return r.key.workflowID(), nil }

// Now reads the rollout.
func (r *rolloutVerb) Now(ctx context.Context) (now rollout.Status, history []audit.Entry, err error) {
	r.seen, err = r.readRollout(ctx, r.key)
	return r.seen.Value, r.seen.Value.History, err
}

// Fallback returns the rollout as recorded, in the given phase.
func (r *rolloutVerb) Fallback(ctx context.Context, phase, reason string) rollout.Status {
	status := rollout.Status{Party: r.key.party, Namespace: r.key.namespace, Name: r.key.name,
		Steps: []rollout.StepStatus{}, History: []audit.Entry{}, Workflow: r.WorkflowRef(r.key.workflowID(), "")}
	if record, err := r.newestRecord(ctx, r.key); err == nil {
		if outline, err := r.Outline(record); err == nil {
			status = outline
		}
	}
	status.Phase, status.Reason, status.WaitingFor = rollout.Phase(phase), reason, nil
	return status
}

// Closed answers a verb on a rollout whose workflow is closed. A rollback of a frozen rollout starts a new release.
func (r *rolloutVerb) Closed(ctx context.Context, now rollout.Status) (rollout.Status, error) {
	if r.verb == rollout.VerbRollback && !r.seen.Open && !r.seen.Starting {
		if status, done, err := r.rollBackFrozen(ctx, now); done || err != nil {
			return status, err
		}
	}
	return now, verbs.Refusal(r, fmt.Sprintf("%s cannot be done: %s", r.verb, whyClosed(r.seen, r.key)), now)
}

// Name adds the rollout's workflow to a problem.
func (r *rolloutVerb) Name(p *problem.Error) *problem.Error { return p.HeldBy(r.key.workflowID()) }

// Show adds the rollout to a problem.
func (r *rolloutVerb) Show(p *problem.Error, status rollout.Status) *problem.Error {
	return p.Showing(status)
}

// whyClosed returns why a rollout takes no verbs, and what to do instead.
func whyClosed(seen rolloutSnapshot, key rolloutKey) string {
	switch {
	case seen.Starting:
		return "the rollout is being started: repeat in a few seconds"
	case seen.Value.Frozen:
		return "the rollout was stopped with its split left in place: roll it back, or start the next release of the " +
			"workload, which restores it first"
	case seen.Value.Phase == rollout.PhaseFailed:
		return seen.Value.Reason
	case seen.Value.Phase == rollout.PhaseHealthy:
		return "the rollout is Healthy, which is final: to go back to an earlier version, undo it (POST " +
			key.verb("undo") + ")"
	}
	return fmt.Sprintf("the rollout is %s, which is final; start a new one to release it again", seen.Value.Phase)
}

// rollBackFrozen starts a release that only rolls back what the last one left frozen. done means that it has answered
// the verb.
func (r *rolloutVerb) rollBackFrozen(ctx context.Context, last rollout.Status) (status rollout.Status, done bool,
	err error) {
	record, err := r.newestRecord(ctx, r.key)
	if err != nil {
		return last, false, err
	}
	repeats := store.IsRestoreOnly(record) && record.Labels[v1alpha1.LabelIdempotencyKey] == start.KeyLabel(
		r.request.Key)
	if repeats && record.Outcome != nil {
		return last, true, nil
	}
	s := &rolloutStart{Handlers: r.Handlers, rollBackFrozen: true}
	if s.request.Spec, err = specOf(record); err != nil {
		return last, false, err
	}
	if !last.Frozen && !repeats {
		if left, err := s.frozenByEarlierRelease(ctx, last); !left || err != nil {
			return last, false, err
		}
	}
	s.request.Actor, s.request.Reason, s.request.Key = r.request.Actor, r.request.Reason, r.request.Key
	status, err = s.run(ctx, r.request.Via)
	return status, true, err
}

// frozenByEarlierRelease reports whether the workload still has the split of an earlier release, for a rollout that was
// cancelled before it made its own.
func (s *rolloutStart) frozenByEarlierRelease(ctx context.Context, last rollout.Status) (bool, error) {
	if last.Phase != rollout.PhaseCancelled {
		return false, nil
	}
	if err := s.resolveParty(ctx); err != nil {
		return false, err
	}
	found, err := s.findings(ctx)
	if err != nil {
		return false, err
	}
	return found.Frozen, nil
}

// Objects lets the controller of Rollout objects start and command releases in the same way as the HTTP API.
type Objects struct {
	*Handlers
	recordLimit int
}

// NewObjects creates an Objects. It keeps recordLimit records of a name.
func NewObjects(b *backend.Backend, recordLimit int) *Objects {
	return &Objects{&Handlers{Backend: b}, recordLimit}
}

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
	refusal, is := errors.AsType[*problem.Error](err)
	if !is {
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
		Generation: c.Generation, ObjectState: c.State, Refuse: c.Refuse,
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

// HasGivenBack reports whether the release that made a claim has ended and given everything back. One of another engine
// is not known here.
func (o *Objects) HasGivenBack(ctx context.Context, claim string) (bool, error) {
	engine, err := o.Home.Engine(ctx)
	if err != nil || workload.ParseHolder(claim).Engine.Differs(engine) {
		return false, err
	}
	return execution.HasGivenBack(ctx, o.Temporal, claim)
}
