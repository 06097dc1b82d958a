package plans

import (
	"context"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
)

// This file is about tasks that begin with an earlier one: those that run it again, and those that take it back.

// rerun is what is run again of a task.
type rerun struct {
	task     string
	document plan.Document
	// timed says that the earlier execution's times hold again: what is past of them is so by nature.
	timed bool
}

// RerunTask answers POST /api/v1/tasks/{id}/rerun.
func (h *Handlers) RerunTask(c echo.Context, id schema.TaskID, params schema.RerunTaskParams) error {
	request, times, err := h.executeRequest(c, schema.ExecutePlanParams(params))
	if err != nil {
		return err
	}
	seen, snapshot, err := h.past(c.Request().Context(), id)
	if err != nil {
		return err
	}
	document, err := plan.Rerun(seen.task, snapshot)
	if failure.Is(err, failure.Conflict) {
		return problem.Conflict.Because("%s", err).About(id, &seen.task)
	}
	if err != nil {
		return err
	}
	again := &rerun{task: id, document: document, timed: times.AnyTime()}
	if again.timed {
		times = snapshot.Times // whoever held the earlier task back has not said otherwise
	}
	request.Subject = seen.task.Plan
	request.Asked = rerunDigest{id, asked(request, times)}
	return h.answerStart(c, request, times, again)
}

// rerunDigest is what tells two requests under one key apart.
type rerunDigest struct {
	RerunOf string                `json:"rerunOf"`
	Request schema.ExecuteRequest `json:"request"`
}

// past reads a task with what it ran. One that has just ended is waited for, until its record says so too.
func (h *Handlers) past(ctx context.Context, id string) (taskSnapshot, plan.Snapshot, error) {
	seen, err := h.readTask(ctx, id, newTaskReader(h))
	if err != nil {
		return seen, plan.Snapshot{}, err
	}
	if seen.open && seen.task.State.Final() && h.ClosesSoon(ctx, plan.WorkflowID(id)) {
		if seen, err = h.readTask(ctx, id, newTaskReader(h)); err != nil {
			return seen, plan.Snapshot{}, err
		}
	}
	snapshot, err := h.snapshotOf(ctx, id)
	return seen, snapshot, err
}

// snapshotOf is what a task runs, from its record.
func (h *Handlers) snapshotOf(ctx context.Context, id string) (snapshot plan.Snapshot, err error) {
	record, err := h.Home.GetRecord(ctx, id)
	if failure.Is(err, failure.NotFound) {
		return snapshot, problem.NotFound.Because("task %s has no record any more, which says what it ran", id)
	}
	if err != nil {
		return snapshot, err
	}
	err = v1alpha1.DecodeBody(record.Spec.Snapshot, &snapshot)
	return snapshot, err
}

// ReverseTask answers POST /api/v1/tasks/{id}/reverse: it saves the plan that takes the task back, and executes nothing.
func (h *Handlers) ReverseTask(c echo.Context, id schema.TaskID) error {
	ctx := c.Request().Context()
	seen, snapshot, err := h.past(ctx, id)
	if err != nil {
		return err
	}
	if !seen.task.State.Final() {
		return problem.Conflict.Because("task %s is %s: only a task that is over can be reversed; stop it first (POST /api/v1/tasks/%s/stop), or wait",
			id, seen.task.State, id).About(id, &seen.task)
	}
	reverse := plan.NewReport(seen.task, snapshot).Reverse
	if reverse.Document == nil {
		problems := make([]schema.FieldProblem, len(reverse.Notes))
		for i, note := range reverse.Notes {
			problems[i] = schema.FieldProblem{Reason: note}
		}
		return problem.Refused.Because("task %s cannot be reversed by a plan: %s", id, problem.Summary(problems)).Listing(problems)
	}
	result := schema.ReversePlan{Name: plan.ReverseName(seen.task.Plan, id), Notes: append([]string{}, reverse.Notes...), Document: *reverse.Document}
	failpoint.Hit("plan.reverse.before")
	err = h.Home.CreatePlan(ctx, result.Name, result.Document)
	failpoint.Hit("plan.reverse.after")
	if result.Created = err == nil; result.Created {
		c.Response().Header().Set(echo.HeaderLocation, "/api/v1/plans/"+result.Name)
		return c.JSON(http.StatusCreated, result)
	}
	if !failure.Is(err, failure.Conflict) {
		return err
	}
	there, err := h.plan(ctx, result.Name)
	if err != nil {
		return err
	}
	result.Document = there.Spec
	return c.JSON(http.StatusOK, result)
}

// recorded is a task whose changes a plan restores, as its record has it, or why it can't be restored from.
func (h *Handlers) recorded(ctx context.Context, id string) (plan.Recorded, error) {
	record, err := h.Home.GetRecord(ctx, id)
	switch {
	case failure.Is(err, failure.NotFound):
		return plan.Recorded{Problem: fmt.Sprintf("task %s does not exist, or its record is not kept any more (--record-limit), so nobody knows what was there "+
			"before it", id)}, nil
	case err != nil:
		return plan.Recorded{}, err
	case record.Outcome == nil:
		return plan.Recorded{Problem: fmt.Sprintf("task %s is not over: wait, or stop it first", id)}, nil
	}
	var task plan.Task
	if err := v1alpha1.DecodeBody(record.Outcome.Body, &task); err != nil {
		return plan.Recorded{}, fmt.Errorf("record %s: %w", record.Name, err)
	}
	return plan.Recorded{Task: task}, nil
}
