package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/workflows"
)

const (
	// takenWithin is how long a workflow worker may take to take a verb on (design §4).
	takenWithin = 3 * time.Second
	// answeredWithin is how long a verb that was taken on may take to be carried out: resume first asks the home cluster.
	answeredWithin = 15 * time.Second
)

// PauseTask answers POST /api/v1/tasks/{id}/pause.
func (h *handlers) PauseTask(c echo.Context, id TaskID, params PauseTaskParams) error {
	return h.verb(c, id, plan.VerbPause, params.SlipwayVia)
}

// ResumeTask answers POST /api/v1/tasks/{id}/resume.
func (h *handlers) ResumeTask(c echo.Context, id TaskID, params ResumeTaskParams) error {
	return h.verb(c, id, plan.VerbResume, params.SlipwayVia)
}

// StopTask answers POST /api/v1/tasks/{id}/stop.
func (h *handlers) StopTask(c echo.Context, id TaskID, params StopTaskParams) error {
	return h.verb(c, id, plan.VerbStop, params.SlipwayVia)
}

// verb carries out a verb and answers the task as it is then. What the task refuses is 409 with its reason.
func (h *handlers) verb(c echo.Context, id string, verb plan.Verb, via *Via) error {
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
func (h *handlers) command(ctx context.Context, id string, verb plan.Verb, request workflows.VerbRequest) (plan.Task, error) {
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

func verbRequest(c echo.Context, via *Via) (workflows.VerbRequest, error) {
	var request workflows.VerbRequest
	err := readFields(c,
		textField{name: "actor", most: maxActor, into: &request.Actor},
		textField{name: "reason", most: maxReason, into: &request.Reason},
		textField{name: "key", most: maxKey, into: &request.Key},
		textField{name: "step", refused: "is not taken here: a task has no steps; leave it out"},
		textField{name: "gate", refused: "is not taken here: a task has no gates; leave it out"})
	if err != nil {
		return request, err
	}
	if request.Via, err = frontDoor(via); err != nil {
		return request, err
	}
	if len(request.Key) > maxKey {
		return request, kindMalformed.because("key has %d bytes: at most %d", len(request.Key), maxKey)
	}
	if request.Key == "" {
		request.Key = uuid.NewString()
	}
	return request, nil
}

// update sends the verb and waits for its outcome. The key is the Update's ID: sent twice, it is one command.
func (h *handlers) update(ctx context.Context, id string, verb plan.Verb, request workflows.VerbRequest) (workflows.VerbResponse, error) {
	var response workflows.VerbResponse
	err := h.updateWorkflow(ctx, workflowUpdate{plan.WorkflowID(id), string(verb), request.Key, request}, &response)
	return response, err
}

// workflowUpdate is one Update of a workflow. The key is its ID: sent twice, it is one command.
type workflowUpdate struct {
	workflowID, name, key string
	request               any
}

// updateWorkflow sends an Update and waits for its outcome.
func (h *handlers) updateWorkflow(ctx context.Context, update workflowUpdate, response any) error {
	taken, cancel := context.WithTimeout(ctx, takenWithin)
	defer cancel()
	handle, err := h.Temporal.UpdateWorkflow(taken, client.UpdateWorkflowOptions{
		UpdateID: update.key, WorkflowID: update.workflowID, UpdateName: update.name, Args: []any{update.request},
		WaitForStage: client.WorkflowUpdateStageAccepted,
	})
	if err != nil {
		return err
	}
	answered, cancelAnswered := context.WithTimeout(ctx, answeredWithin)
	defer cancelAnswered()
	return handle.Get(answered, response)
}

// updateUnheard says whether nobody answered an Update in time, so that its outcome is unknown.
func updateUnheard(err error) bool {
	var late *client.WorkflowUpdateServiceTimeoutOrCanceledError
	return errors.As(err, &late) || temporalAway(err)
}

// unheard is the answer to a verb that the workflow did not answer: it is over, or gone, or nobody is there to answer.
func (h *handlers) unheard(ctx context.Context, id string, verb plan.Verb, request workflows.VerbRequest, cause error) (plan.Task, error) {
	var missing *serviceerror.NotFound
	var refused *temporal.ApplicationError
	switch {
	case errors.As(cause, &missing), errors.As(cause, &refused) && refused.Type() == updateCutOff:
		return h.afterEnd(ctx, id, verb, request)
	case errors.As(cause, &refused):
		return plan.Task{}, kindMalformed.because("%s was not taken: %s", verb, refused.Message())
	case updateUnheard(cause):
		return plan.Task{}, kindUnreachable.because("no workflow worker of the engine answered in time: the outcome of %s is unknown; repeat with the same key, %q",
			verb, request.Key).about(id, nil)
	}
	return plan.Task{}, fmt.Errorf("%s of task %s: %w", verb, id, cause)
}

// updateCutOff is the type of the server's error for an Update that was taken on by a workflow that closed before it answered.
const updateCutOff = "AcceptedUpdateCompletedWorkflow"

// afterEnd answers a verb on a task whose workflow is closed. A repeat of a verb that it had taken gets the same answer as then.
func (h *handlers) afterEnd(ctx context.Context, id string, verb plan.Verb, request workflows.VerbRequest) (plan.Task, error) {
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
	return kindConflict.because("%s", message).about(task.ID, &task)
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
