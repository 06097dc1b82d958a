package plans

import (
	"context"
	"fmt"
	"slices"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/verbs"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/strictyaml"
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

// ApproveTask answers POST /api/v1/tasks/{id}/approve.
func (h *Handlers) ApproveTask(c echo.Context, id schema.TaskID, params schema.ApproveTaskParams) error {
	return h.verb(c, id, plan.VerbApprove, params.SlipwayVia)
}

// verb executes a verb and responds with the task as it is afterwards.
func (h *Handlers) verb(c echo.Context, id string, verb plan.Verb, via *schema.Via) error {
	var request workflows.TaskVerbRequest
	to := input.Field{Name: "to", MaxLength: input.MaxGate, Into: (*string)(&request.To)}
	if verb != plan.VerbStop {
		to.Refused = "is for stop only: leave it out"
	}
	err := verbs.Read(c, via, &request.VerbRequest, to,
		input.Field{Name: "step", Refused: "is not taken here: a task has no steps; leave it out"},
		input.Field{Name: "gate", Refused: "is not taken here: a task has no gates; leave it out"})
	if err != nil {
		return err
	}
	if !plan.IsTaskID(id) {
		return noSuchTask(id)
	}
	if request.To != "" && !slices.Contains(rollout.StopTos, request.To) {
		return problem.BadField("to", fmt.Sprintf("%q is none of %s", request.To, strictyaml.List(rollout.StopTos)))
	}
	return verbs.Execute(c, h.Backend, &taskVerb{Handlers: h, id: id, verb: verb},
		verbs.Command{Verb: string(verb), Key: request.Key, Payload: request})
}

// taskVerb is the target of a task's verb.
type taskVerb struct {
	*Handlers
	id   string
	verb plan.Verb
	// seen is the task as last read.
	seen taskSnapshot
}

// Workflow returns the task's workflow, which may be closed.
func (t *taskVerb) Workflow(context.Context) (string, error) { return plan.WorkflowID(t.id), nil }

// Now reads the task.
func (t *taskVerb) Now(ctx context.Context) (now plan.Task, history []audit.Entry, err error) {
	t.seen, err = t.readTask(ctx, t.id, newTaskReader(t.Handlers))
	return t.seen.task, t.seen.task.History, err
}

// Fallback returns the task as recorded, in the given state.
func (t *taskVerb) Fallback(ctx context.Context, state, reason string) plan.Task {
	task := plan.Task{ID: t.id, Services: []plan.ServiceStatus{}, Workflow: t.WorkflowRef(plan.WorkflowID(t.id), "")}
	if record, err := t.Home.GetRecord(ctx, t.id); err == nil {
		if outline, err := t.outlineTask(record); err == nil {
			task = outline
		}
	}
	for i := range task.Services {
		task.Services[i].Reason = "currently unknown"
	}
	task.State, task.Reason = plan.TaskState(state), reason
	return task
}

// Closed refuses a verb on a task that has ended.
func (t *taskVerb) Closed(_ context.Context, now plan.Task) (plan.Task, error) {
	why := fmt.Sprintf("the task is %s, which is final; execute the plan again to run it again", now.State)
	switch {
	case t.seen.starting:
		why = "the task is being started: repeat in a few seconds"
	case now.State == plan.TaskInterrupted:
		why = now.Reason
	}
	return now, verbs.Refusal(t, fmt.Sprintf("%s cannot be done: %s", t.verb, why), now)
}

// Name adds the task's name to a problem.
func (t *taskVerb) Name(p *problem.Error) *problem.Error { return p.About(t.id, nil) }

// Show adds the task to a problem.
func (t *taskVerb) Show(p *problem.Error, task plan.Task) *problem.Error {
	return p.About(task.ID, &task)
}
