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

// This file is about tasks that start from an earlier task: reruns and reversals.

// rerun is the earlier task that is run again.
type rerun struct {
	task     string
	document plan.Document
	// keepsTimes means that the earlier execution's times apply again; no warning is due for the past ones among them.
	keepsTimes bool
}

// RerunTask answers POST /api/v1/tasks/{id}/rerun.
func (h *Handlers) RerunTask(c echo.Context, id schema.TaskID, params schema.RerunTaskParams) error {
	request, times, err := h.executeRequest(c, schema.ExecutePlanParams(params))
	if err != nil {
		return err
	}
	seen, snapshot, err := h.taskWithSnapshot(c.Request().Context(), id)
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
	again := &rerun{task: id, document: document, keepsTimes: times.AnyTime()}
	if again.keepsTimes {
		times = snapshot.Times // the caller has not overridden the earlier times
	}
	request.Subject = seen.task.Plan
	request.DigestInput = rerunDigest{id, requestBody(request, times)}
	return h.answerStart(c, request, times, again)
}

// rerunDigest is hashed to distinguish requests with the same Idempotency-Key.
type rerunDigest struct {
	RerunOf string                `json:"rerunOf"`
	Request schema.ExecuteRequest `json:"request"`
}

// taskWithSnapshot reads a task and the snapshot that it ran. If the task has just ended, it first waits until the
// task's workflow has closed.
func (h *Handlers) taskWithSnapshot(ctx context.Context, id string) (taskSnapshot, plan.Snapshot, error) {
	seen, err := h.readTask(ctx, id, newTaskReader(h))
	if err != nil {
		return seen, plan.Snapshot{}, err
	}
	if seen.open && seen.task.State.Final() && h.WaitForClose(ctx, plan.WorkflowID(id)) {
		if seen, err = h.readTask(ctx, id, newTaskReader(h)); err != nil {
			return seen, plan.Snapshot{}, err
		}
	}
	snapshot, err := h.snapshotOf(ctx, id)
	return seen, snapshot, err
}

// snapshotOf returns the snapshot that a task runs, from its record.
func (h *Handlers) snapshotOf(ctx context.Context, id string) (snapshot plan.Snapshot, err error) {
	record, err := h.Home.GetRecord(ctx, id)
	if failure.Is(err, failure.NotFound) {
		return snapshot, problem.NotFound.Because("the record of task %s, which contains what it ran, no longer exists",
			id)
	}
	if err != nil {
		return snapshot, err
	}
	err = v1alpha1.DecodeBody(record.Spec.Snapshot, &snapshot)
	return snapshot, err
}

// ReverseTask answers POST /api/v1/tasks/{id}/reverse: it saves the plan that reverts the task's changes, and executes
// nothing.
func (h *Handlers) ReverseTask(c echo.Context, id schema.TaskID) error {
	ctx := c.Request().Context()
	seen, snapshot, err := h.taskWithSnapshot(ctx, id)
	if err != nil {
		return err
	}
	if !seen.task.State.Final() {
		return problem.Conflict.Because("task %s is %s: only a task that has ended can be reversed; stop it first "+
			"(POST /api/v1/tasks/%s/stop), or wait",
			id, seen.task.State, id).About(id, &seen.task)
	}
	reverse := plan.NewReport(seen.task, snapshot).Reverse
	if reverse.Document == nil {
		problems := make([]schema.FieldProblem, len(reverse.Notes))
		for i, note := range reverse.Notes {
			problems[i] = schema.FieldProblem{Reason: note}
		}
		return problem.Refused.Because("task %s cannot be reversed by a plan: %s", id,
			problem.Summary(problems)).Listing(problems)
	}
	result := schema.ReversePlan{Name: plan.ReverseName(seen.task.Plan, id),
		Notes: append([]string{}, reverse.Notes...), Document: *reverse.Document}
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

// restorableTask returns the recorded task whose changes a plan restores, or the reason why it cannot be restored.
func (h *Handlers) restorableTask(ctx context.Context, id string) (plan.Recorded, error) {
	record, err := h.Home.GetRecord(ctx, id)
	switch {
	case failure.Is(err, failure.NotFound):
		return plan.Recorded{Problem: fmt.Sprintf(
			"task %s does not exist, or its record is no longer kept (--record-limit), so the state before it is "+
				"unknown", id)}, nil
	case err != nil:
		return plan.Recorded{}, err
	case record.Outcome == nil:
		return plan.Recorded{Problem: fmt.Sprintf("task %s has not ended: wait, or stop it first", id)}, nil
	}
	var task plan.Task
	if err := v1alpha1.DecodeBody(record.Outcome.Body, &task); err != nil {
		return plan.Recorded{}, fmt.Errorf("record %s: %w", record.Name, err)
	}
	return plan.Recorded{Task: task}, nil
}
