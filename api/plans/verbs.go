package plans

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/workflows"
)

// PauseTask answers POST /api/v1/tasks/{id}/pause.
func (h *Handlers) PauseTask(c echo.Context, id schema.TaskID, params schema.PauseTaskParams) error {
	return h.verb(c, id, plan.VerbPause, params.SlipwayVia)
}

// ResumeTask answers POST /api/v1/tasks/{id}/resume.
func (h *Handlers) ResumeTask(c echo.Context, id schema.TaskID, params schema.ResumeTaskParams) error {
	return h.verb(c, id, plan.VerbResume, params.SlipwayVia)
}

// StopTask answers POST /api/v1/tasks/{id}/stop.
func (h *Handlers) StopTask(c echo.Context, id schema.TaskID, params schema.StopTaskParams) error {
	return h.verb(c, id, plan.VerbStop, params.SlipwayVia)
}

// verb carries out a verb and answers the task as it is then. What the task refuses is 409 with its reason.
func (h *Handlers) verb(c echo.Context, id string, verb plan.Verb, via *schema.Via) error {
	request, err := verbRequest(c, via)
	if err != nil {
		return err
	}
	if !isTaskID(id) {
		return noSuchTask(id)
	}
	// A verb that is on its way is carried out whether or not the caller still listens.
	task, err := h.command(context.WithoutCancel(c.Request().Context()), id, verb, request)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, task)
}

// command sends a verb to the task's workflow as an Update.
func (h *Handlers) command(ctx context.Context, id string, verb plan.Verb, request workflows.VerbRequest) (plan.Task, error) {
	response, err := h.update(ctx, id, verb, request)
	if err != nil {
		return h.unheard(ctx, id, verb, request, err)
	}
	seen, err := h.readTask(ctx, id, newTaskReader(h))
	if err != nil {
		return plan.Task{}, err
	}
	if response.Outcome == plan.OutcomeRefused {
		return plan.Task{}, refusedVerb(response.Message, seen.task)
	}
	if other := usedFor(seen.task, request.Key); other != "" && other != verb {
		return plan.Task{}, keyOfAnother(request.Key, other, seen.task)
	}
	return seen.task, nil
}

func verbRequest(c echo.Context, via *schema.Via) (workflows.VerbRequest, error) {
	var request workflows.VerbRequest
	err := input.Fields(c,
		input.Field{Name: "actor", Most: input.MaxActor, Into: &request.Actor},
		input.Field{Name: "reason", Most: input.MaxReason, Into: &request.Reason},
		input.Field{Name: "key", Most: input.MaxKey, Into: &request.Key},
		input.Field{Name: "step", Refused: "is not taken here: a task has no steps; leave it out"},
		input.Field{Name: "gate", Refused: "is not taken here: a task has no gates; leave it out"})
	if err != nil {
		return request, err
	}
	if request.Via, err = input.FrontDoor(via); err != nil {
		return request, err
	}
	if len(request.Key) > input.MaxKey {
		return request, problem.Malformed.Because("key has %d bytes: at most %d", len(request.Key), input.MaxKey)
	}
	if request.Key == "" {
		request.Key = uuid.NewString()
	}
	return request, nil
}

// update sends the verb and waits for its outcome. The key is the Update's ID: sent twice, it is one command.
func (h *Handlers) update(ctx context.Context, id string, verb plan.Verb, request workflows.VerbRequest) (workflows.VerbResponse, error) {
	var response workflows.VerbResponse
	err := h.Update(ctx, backend.WorkflowUpdate{WorkflowID: plan.WorkflowID(id), Name: string(verb), Key: request.Key, Request: request}, &response)
	return response, err
}

// unheard is the answer to a verb that the workflow did not answer: it is over, or gone, or nobody is there to answer.
func (h *Handlers) unheard(ctx context.Context, id string, verb plan.Verb, request workflows.VerbRequest, cause error) (plan.Task, error) {
	var missing *serviceerror.NotFound
	var refused *temporal.ApplicationError
	switch {
	case errors.As(cause, &missing), errors.As(cause, &refused) && refused.Type() == backend.UpdateCutOff:
		return h.afterEnd(ctx, id, verb, request)
	case errors.As(cause, &refused):
		return plan.Task{}, problem.Malformed.Because("%s was not taken: %s", verb, refused.Message())
	case backend.UpdateUnheard(cause):
		return plan.Task{}, problem.Unreachable.Because("no workflow worker of the engine answered in time: the outcome of %s is unknown; repeat with the same key, %q",
			verb, request.Key).About(id, nil)
	}
	return plan.Task{}, fmt.Errorf("%s of task %s: %w", verb, id, cause)
}

// afterEnd answers a verb on a task whose workflow is closed. A repeat of a verb that it had taken gets the same answer as then.
func (h *Handlers) afterEnd(ctx context.Context, id string, verb plan.Verb, request workflows.VerbRequest) (plan.Task, error) {
	seen, err := h.readTask(ctx, id, newTaskReader(h))
	if err != nil {
		return plan.Task{}, err
	}
	for _, decision := range seen.task.History {
		switch {
		case decision.Key != request.Key:
		case decision.Verb != verb:
			return plan.Task{}, keyOfAnother(request.Key, decision.Verb, seen.task)
		case decision.Outcome == plan.OutcomeRefused:
			return plan.Task{}, refusedVerb(decision.Message, seen.task)
		default:
			return seen.task, nil
		}
	}
	why := fmt.Sprintf("the task is %s, which is final; execute the plan anew if it is to run again", seen.task.State)
	switch {
	case seen.starting:
		why = "the task is being started: repeat in some seconds"
	case seen.task.State == plan.TaskInterrupted:
		why = seen.task.Reason
	}
	return plan.Task{}, refusedVerb(fmt.Sprintf("%s cannot be done: %s", verb, why), seen.task)
}

func refusedVerb(message string, task plan.Task) error {
	return problem.Conflict.Because("%s", message).About(task.ID, &task)
}

// usedFor is the verb that the key was first sent with.
func usedFor(task plan.Task, key string) plan.Verb {
	for _, decision := range task.History {
		if decision.Key == key {
			return decision.Verb
		}
	}
	return ""
}

func keyOfAnother(key string, other plan.Verb, task plan.Task) error {
	return refusedVerb(fmt.Sprintf("the key %q was used for %s: nothing was done; take a new key", key, other), task)
}
