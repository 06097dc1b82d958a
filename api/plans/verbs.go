package plans

import (
	"context"
	"fmt"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/verbs"
	"slipway.io/slipway/release/audit"
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

// verb carries out a verb and answers the task as it is then.
func (h *Handlers) verb(c echo.Context, id string, verb plan.Verb, via *schema.Via) error {
	var request workflows.VerbRequest
	err := verbs.Read(c, via, &request,
		input.Field{Name: "step", Refused: "is not taken here: a task has no steps; leave it out"},
		input.Field{Name: "gate", Refused: "is not taken here: a task has no gates; leave it out"})
	if err != nil {
		return err
	}
	if !isTaskID(id) {
		return noSuchTask(id)
	}
	return verbs.Carry(c, h.Backend, &taskVerb{Handlers: h, id: id, verb: verb}, verbs.Command{Verb: string(verb), Key: request.Key, Payload: request})
}

// taskVerb is a task that a verb is sent to.
type taskVerb struct {
	*Handlers
	id   string
	verb plan.Verb
	// seen is the task as it was last read.
	seen taskSnapshot
}

// Workflow is the task's own, which may be closed.
func (t *taskVerb) Workflow(context.Context) (string, error) { return plan.WorkflowID(t.id), nil }

// Now reads the task.
func (t *taskVerb) Now(ctx context.Context) (now verbs.Snapshot[plan.Task], err error) {
	if t.seen, err = t.readTask(ctx, t.id, newTaskReader(t.Handlers)); err != nil {
		return now, err
	}
	now.View = t.seen.task
	for _, d := range t.seen.task.History {
		now.History = append(now.History, verbs.Entry{Key: d.Key, Verb: string(d.Verb), Message: d.Message, Refused: d.Outcome == audit.Refused})
	}
	return now, nil
}

// Closed refuses a verb on a task that is over.
func (t *taskVerb) Closed(_ context.Context, now verbs.Snapshot[plan.Task]) (plan.Task, error) {
	why := fmt.Sprintf("the task is %s, which is final; execute the plan anew if it is to run again", now.View.State)
	switch {
	case t.seen.starting:
		why = "the task is being started: repeat in some seconds"
	case now.View.State == plan.TaskInterrupted:
		why = now.View.Reason
	}
	return now.View, verbs.Refusal(t, fmt.Sprintf("%s cannot be done: %s", t.verb, why), now.View)
}

// Name names the task.
func (t *taskVerb) Name(p *problem.Error) *problem.Error { return p.About(t.id, nil) }

// Show shows the task.
func (t *taskVerb) Show(p *problem.Error, task plan.Task) *problem.Error {
	return p.About(task.ID, &task)
}
