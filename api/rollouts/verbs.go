package rollouts

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/workflows"
)

// ApproveRollout answers POST /api/v1/rollouts/{namespace}/{name}/approve.
func (h *Handlers) ApproveRollout(c echo.Context, namespace schema.Namespace, name schema.RolloutName, params schema.ApproveRolloutParams) error {
	return h.rolloutVerb(c, rollout.VerbApprove, rolloutAddress{params.Party, namespace, name, params.SlipwayVia})
}

// PauseRollout answers POST /api/v1/rollouts/{namespace}/{name}/pause.
func (h *Handlers) PauseRollout(c echo.Context, namespace schema.Namespace, name schema.RolloutName, params schema.PauseRolloutParams) error {
	return h.rolloutVerb(c, rollout.VerbPause, rolloutAddress{params.Party, namespace, name, params.SlipwayVia})
}

// ResumeRollout answers POST /api/v1/rollouts/{namespace}/{name}/resume.
func (h *Handlers) ResumeRollout(c echo.Context, namespace schema.Namespace, name schema.RolloutName, params schema.ResumeRolloutParams) error {
	return h.rolloutVerb(c, rollout.VerbResume, rolloutAddress{params.Party, namespace, name, params.SlipwayVia})
}

// RollbackRollout answers POST /api/v1/rollouts/{namespace}/{name}/rollback.
func (h *Handlers) RollbackRollout(c echo.Context, namespace schema.Namespace, name schema.RolloutName, params schema.RollbackRolloutParams) error {
	return h.rolloutVerb(c, rollout.VerbRollback, rolloutAddress{params.Party, namespace, name, params.SlipwayVia})
}

// StopRollout answers POST /api/v1/rollouts/{namespace}/{name}/stop.
func (h *Handlers) StopRollout(c echo.Context, namespace schema.Namespace, name schema.RolloutName, params schema.StopRolloutParams) error {
	return h.rolloutVerb(c, rollout.VerbStop, rolloutAddress{params.Party, namespace, name, params.SlipwayVia})
}

// JumpRollout answers POST /api/v1/rollouts/{namespace}/{name}/jump.
func (h *Handlers) JumpRollout(c echo.Context, namespace schema.Namespace, name schema.RolloutName, params schema.JumpRolloutParams) error {
	return h.rolloutVerb(c, rollout.VerbJump, rolloutAddress{params.Party, namespace, name, params.SlipwayVia})
}

// RetryRollout answers POST /api/v1/rollouts/{namespace}/{name}/retry.
func (h *Handlers) RetryRollout(c echo.Context, namespace schema.Namespace, name schema.RolloutName, params schema.RetryRolloutParams) error {
	return h.rolloutVerb(c, rollout.VerbRetry, rolloutAddress{params.Party, namespace, name, params.SlipwayVia})
}

// PromoteRollout answers POST /api/v1/rollouts/{namespace}/{name}/promote.
func (h *Handlers) PromoteRollout(c echo.Context, namespace schema.Namespace, name schema.RolloutName, params schema.PromoteRolloutParams) error {
	return h.rolloutVerb(c, rollout.VerbPromote, rolloutAddress{params.Party, namespace, name, params.SlipwayVia})
}

// rolloutAddress is the address of a verb, and the door it came through.
type rolloutAddress struct {
	party           *schema.Party
	namespace, name string
	via             *schema.Via
}

// rolloutVerb carries out a verb and answers the rollout as it is then. What the rollout refuses is 409 with its reason and its fresh state.
func (h *Handlers) rolloutVerb(c echo.Context, verb rollout.Verb, at rolloutAddress) error {
	request, err := rolloutVerbRequest(c, verb, at.via)
	if err != nil {
		return err
	}
	key, err := newRolloutKey(at.party, at.namespace, at.name)
	if err != nil {
		return err
	}
	command := rolloutCommand{Handlers: h, key: key, verb: verb, request: request}
	// A verb that is on its way is carried out whether or not the caller still listens.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request().Context()), start.Timeout)
	defer cancel()
	status, err := command.run(ctx)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, status)
}

// rolloutVerbRequest reads a verb's body. What belongs to another verb is refused rather than ignored.
func rolloutVerbRequest(c echo.Context, verb rollout.Verb, via *schema.Via) (workflows.RolloutVerbRequest, error) {
	var request workflows.RolloutVerbRequest
	to := input.Field{Name: "to", Most: input.MaxGate, Into: (*string)(&request.To)}
	if verb != rollout.VerbStop {
		to.Refused = "is for stop only: leave it out"
	}
	toStep := input.Field{Name: "toStep", Number: &request.ToStep}
	if verb != rollout.VerbJump {
		toStep.Refused = "is for jump only: leave it out"
	}
	err := input.Fields(c,
		input.Field{Name: "actor", Most: input.MaxActor, Into: &request.Actor},
		input.Field{Name: "reason", Most: input.MaxReason, Into: &request.Reason},
		input.Field{Name: "key", Most: workflows.MaxKey, Into: &request.Key},
		input.Field{Name: "step", Number: &request.Step},
		input.Field{Name: "gate", Most: input.MaxGate, Into: &request.Gate}, to, toStep)
	if err != nil {
		return request, err
	}
	stops := []rollout.StopTo{rollout.StopToStable, rollout.StopToNew, rollout.StopToFrozen}
	approves := verb == rollout.VerbApprove || verb == rollout.VerbPromote
	switch {
	case approves && request.Gate == "" && request.Step == 0:
		return request, problem.BadField("gate", fmt.Sprintf("is missing: say what to %s, by waitingFor.gate of the rollout or by its step; one that names neither could meet another step than the one that was looked at", verb))
	case verb == rollout.VerbJump && request.ToStep == 0:
		return request, problem.BadField("toStep", "is missing: say to which step, counted from 1")
	case request.To != "" && !slices.Contains(stops, request.To):
		return request, problem.BadField("to", fmt.Sprintf("%q is none of %s", request.To, problem.Join(stops)))
	}
	if request.Via, err = input.FrontDoor(via); err != nil {
		return request, err
	}
	if request.Key == "" {
		request.Key = uuid.NewString()
	}
	return request, nil
}

// rolloutCommand is one verb on its way to a rollout's workflow.
type rolloutCommand struct {
	*Handlers
	key     rolloutKey
	verb    rollout.Verb
	request workflows.RolloutVerbRequest
}

// run sends the verb as an Update.
func (r *rolloutCommand) run(ctx context.Context) (rollout.Status, error) {
	var response workflows.RolloutVerbResponse
	err := r.Update(ctx, backend.WorkflowUpdate{WorkflowID: r.key.workflowID(), Name: string(r.verb), Key: r.request.Key, Request: r.request}, &response)
	if err != nil {
		return r.unheard(ctx, err)
	}
	// The answer to a repeat is that of the first time: the rollout may have gone on since.
	status := response.Status
	if seen, err := r.readRollout(ctx, r.key); err == nil && seen.unanswered == "" {
		status = seen.status
	}
	if response.Outcome == plan.OutcomeRefused {
		return status, r.refusal(response.Message, status)
	}
	if other := r.usedFor(status); other != "" && other != r.verb {
		return status, r.keyOfAnother(other, status)
	}
	return status, nil
}

func (r *rolloutCommand) refusal(message string, status rollout.Status) error {
	return problem.Conflict.Because("%s", message).Showing(status)
}

// usedFor is the verb that the key was first sent with.
func (r *rolloutCommand) usedFor(status rollout.Status) rollout.Verb {
	for _, decision := range status.History {
		if decision.Key == r.request.Key {
			return decision.Verb
		}
	}
	return ""
}

func (r *rolloutCommand) keyOfAnother(other rollout.Verb, status rollout.Status) error {
	return r.refusal(fmt.Sprintf("the key %q was used for %s: nothing was done; take a new key", r.request.Key, other), status)
}

// unheard is the answer to a verb that the workflow did not answer: it is over, or gone, or nobody is there to answer.
func (r *rolloutCommand) unheard(ctx context.Context, cause error) (rollout.Status, error) {
	var missing *serviceerror.NotFound
	var refused *temporal.ApplicationError
	switch {
	case errors.As(cause, &missing), errors.As(cause, &refused) && refused.Type() == backend.UpdateCutOff:
		return r.afterEnd(ctx)
	case errors.As(cause, &refused):
		return rollout.Status{}, problem.Malformed.Because("%s was not taken: %s", r.verb, refused.Message())
	case backend.UpdateUnheard(cause):
		return rollout.Status{}, problem.Unreachable.Because("no workflow worker of the engine answered in time: the outcome of %s is unknown; repeat with the same key, %q",
			r.verb, r.request.Key).HeldBy(r.key.workflowID())
	}
	return rollout.Status{}, fmt.Errorf("%s of %s: %w", r.verb, r.key, cause)
}

// afterEnd answers a verb on a rollout whose workflow is closed. A repeat of a verb that it had taken gets the same answer as then; a rollback of
// what was left frozen is a release of its own.
func (r *rolloutCommand) afterEnd(ctx context.Context) (rollout.Status, error) {
	seen, err := r.readRollout(ctx, r.key)
	if err != nil {
		return rollout.Status{}, err
	}
	for _, decision := range seen.status.History {
		switch {
		case decision.Key != r.request.Key:
		case decision.Verb != r.verb:
			return seen.status, r.keyOfAnother(decision.Verb, seen.status)
		case decision.Outcome == plan.OutcomeRefused:
			return seen.status, r.refusal(decision.Message, seen.status)
		default:
			return seen.status, nil
		}
	}
	if r.verb == rollout.VerbRollback && !seen.open && !seen.starting {
		if status, done, err := r.bringHome(ctx, seen.status); done || err != nil {
			return status, err
		}
	}
	return seen.status, r.refusal(fmt.Sprintf("%s cannot be done: %s", r.verb, whyOver(seen)), seen.status)
}

// whyOver says why nothing can be done to a rollout any more, and what to do instead.
func whyOver(seen rolloutSnapshot) string {
	switch {
	case seen.starting:
		return "the rollout is being started: repeat in some seconds"
	case seen.status.Frozen:
		return "the rollout was stopped where it stood: roll it back, or start the next release of the workload, which brings it home first"
	case seen.status.Phase == rollout.PhaseFailed:
		return seen.status.Reason
	case seen.status.Phase == rollout.PhaseHealthy:
		return "the rollout is Healthy, which is final: to go back, start a rollout with the images of before"
	}
	return fmt.Sprintf("the rollout is %s, which is final; start a new one if it is to be released again", seen.status.Phase)
}

// bringHome starts a release that only brings home what the last one left frozen. done says that it answers the verb.
func (r *rolloutCommand) bringHome(ctx context.Context, last rollout.Status) (status rollout.Status, done bool, err error) {
	record, err := r.newestRecord(ctx, r.key)
	if err != nil {
		return last, false, err
	}
	repeats := isBringHome(record) && record.Labels[v1alpha1.LabelIdempotencyKey] == start.KeyLabel(r.request.Key)
	if repeats && record.Outcome != nil {
		return last, true, nil
	}
	s := &rolloutStart{Handlers: r.Handlers, via: r.request.Via, bringHome: true}
	if s.request.Spec, err = specOf(record); err != nil {
		return last, false, err
	}
	if !last.Frozen && !repeats {
		if left, err := s.leftByAnother(ctx, last); !left || err != nil {
			return last, false, err
		}
	}
	s.request.Actor, s.request.Reason, s.request.Key = r.request.Actor, r.request.Reason, r.request.Key
	status, err = s.run(ctx)
	return status, true, err
}

// leftByAnother says whether the split of an earlier release waits on the workload of one that was stopped before it had a split of its own.
func (s *rolloutStart) leftByAnother(ctx context.Context, last rollout.Status) (bool, error) {
	if last.Phase != rollout.PhaseCancelled {
		return false, nil
	}
	if err := s.place(ctx); err != nil {
		return false, err
	}
	found, err := s.findings(ctx)
	if err != nil {
		return false, err
	}
	return found.Frozen, nil
}
